// image.h — machine code in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

namespace braze {

/// A copy of a flat position-independent image that can be executed. It was never writable and
/// executable at once. Move-only.
class CodeImage {
 public:
  CodeImage() = default;
  /// Throws ResourceExhausted if there is no memory, and Unsupported if the system forbids it.
  explicit CodeImage(std::string_view bytes);
  CodeImage(CodeImage&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  CodeImage& operator=(CodeImage&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~CodeImage();

  const std::byte* base() const { return base_; }

 private:
  std::byte* base_ = nullptr;
  size_t size_ = 0;
};

}  // namespace braze
