// captured_error.h — keeps an error of one thread, so that other threads can throw it.
#pragma once

#include <memory>

#include "braze/error.h"

namespace braze {

/// An error or none. It is immutable, and threads may share it. Unlike a std::exception_ptr, it
/// throws a separate copy on each thread, so that no two threads handle the same exception object.
class CapturedError {
 public:
  CapturedError() = default;
  /// The exception that is being handled. If it is not an Error, it becomes Internal.
  /// std::bad_alloc becomes ResourceExhausted. So does an error that cannot be copied because there
  /// is no memory.
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
  bool out_of_memory_ = false;  // the host had no memory, so nothing else is kept
};

}  // namespace braze
