#include "runtime/execution/captured_error.h"

#include <new>

#include "runtime/memory/allocator.h"

namespace braze {

CapturedError CapturedError::current() noexcept {
  CapturedError captured;
  try {
    try {
      try {
        throw;
      } catch (const Error&) {
        throw;
      } catch (const std::bad_alloc&) {
        throw;
      } catch (const std::exception& error) {
        fail(codes::kInternal, error.what());
      } catch (...) {
        fail(codes::kInternal, "an exception of unknown type");
      }
    } catch (const Error& error) {
      captured.error_ = std::make_shared<const Error>(error);
    }
  } catch (const std::bad_alloc&) {
    captured.out_of_memory_ = true;
  }
  return captured;
}

void CapturedError::fail_again() const {
  if (error_) throw Error(*error_);
  fail(codes::kOutOfMemory, "the host had no memory left for a piece of work");
}

}  // namespace braze
