// box.h — an owned value of a type that may still be incomplete; copying copies the value.
#pragma once

#include <memory>
#include <utility>

namespace braze {

template <class T>
class Box {
 public:
  Box() = default;
  Box(T value) : pointer_(std::make_unique<T>(std::move(value))) {}  // NOLINT: implicit on purpose
  Box(const Box& other) : pointer_(other ? std::make_unique<T>(*other) : nullptr) {}
  Box(Box&&) noexcept = default;
  Box& operator=(Box other) noexcept {
    pointer_ = std::move(other.pointer_);
    return *this;
  }

  explicit operator bool() const { return pointer_ != nullptr; }
  T& operator*() { return *pointer_; }
  const T& operator*() const { return *pointer_; }
  T* operator->() { return pointer_.get(); }
  const T* operator->() const { return pointer_.get(); }

 private:
  std::unique_ptr<T> pointer_;
};

}  // namespace braze
