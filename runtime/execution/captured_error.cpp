#include "runtime/execution/captured_error.h"

namespace braze {

CapturedError CapturedError::current() noexcept {
  CapturedError captured;
  try {
    try {
      throw;
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      fail(codes::kInternal, error.what());
    } catch (...) {
      fail(codes::kInternal, "an exception of unknown type");
    }
  } catch (const Error& error) {
    captured.error_ = std::make_shared<const Error>(error);
  }
  return captured;
}

}  // namespace braze
