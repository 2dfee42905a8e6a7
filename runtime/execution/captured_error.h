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
  /// The exception being handled; one that is no Error becomes Internal.
  static CapturedError current() noexcept;

  explicit operator bool() const { return error_ != nullptr; }
  /// Throws a copy, if there is an error.
  void rethrow() const {
    if (error_) throw Error(*error_);
  }

 private:
  std::shared_ptr<const Error> error_;
};

}  // namespace braze
