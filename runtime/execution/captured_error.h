// captured_error.h — a failure on one thread, kept to be thrown on others.
#pragma once

#include <memory>

#include "braze/error.h"

namespace braze {

/// Immutable and shareable. Unlike a std::exception_ptr it throws a copy of its own to each thread
/// that asks, so that no two threads handle one exception object.
class CapturedError {
 public:
  CapturedError() = default;
  /// The exception being handled. One that is no Error becomes Internal; std::bad_alloc becomes
  /// ResourceExhausted, and so does an error for whose copy there is no memory.
  static CapturedError current() noexcept;

  explicit operator bool() const { return error_ != nullptr || out_of_memory_; }
  /// Throws a copy, if there is an error.
  void rethrow() const {
    if (*this) [[unlikely]]
      fail_again();
  }

 private:
  [[noreturn]] void fail_again() const;

  std::shared_ptr<const Error> error_;
  bool out_of_memory_ = false;  // the host was, so that this is all that is kept
};

}  // namespace braze
