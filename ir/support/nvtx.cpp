#include "ir/support/nvtx.h"

#include <cstdlib>

#if BRAZE_NVTX

#include <nvtx3/nvToolsExt.h>

namespace braze::nvtx {

namespace {

nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t handle = nvtxDomainCreateA("braze");
  return handle;
}

}  // namespace

bool is_built_in() { return true; }

bool is_listening() {
  const char* library = std::getenv("NVTX_INJECTION64_PATH");
  return library && *library;
}

void push(const char* name) {
  nvtxEventAttributes_t range = {};
  range.version = NVTX_VERSION;
  range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  range.messageType = NVTX_MESSAGE_TYPE_ASCII;
  range.message.ascii = name;
  nvtxDomainRangePushEx(domain(), &range);
}

void pop() { nvtxDomainRangePop(domain()); }

}  // namespace braze::nvtx

#else

namespace braze::nvtx {

bool is_built_in() { return false; }
bool is_listening() { return false; }
void push(const char*) {}
void pop() {}

}  // namespace braze::nvtx

#endif
