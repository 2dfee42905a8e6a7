#include "runtime/devices/cuda/cuda_module.h"

#include <algorithm>

#include "braze/trace.h"
#include "ir/support/fork.h"
#include "ir/support/text.h"

namespace braze {

namespace {

constexpr size_t kLogBytes = 16 << 10;

}  // namespace

CudaModule::CudaModule(CudaContext& context, const std::string& code, const std::string& what)
    : context_(context) {
  const TraceSpan span("load", "module", what);
  std::string log(kLogBytes, '\0');
  cuda::CUjit_option options[] = {cuda::CU_JIT_ERROR_LOG_BUFFER,
                                  cuda::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log.data(), reinterpret_cast<void*>(log.size())};
  const cuda::CUresult result =
      context.api().module_load_data_ex(&module_, code.c_str(), 2, options, values);
  if (result == cuda::CUDA_SUCCESS) return;
  const std::string tried = "loading kernel @" + what;
  log.resize(std::min(log.find('\0'), log.size()));
  switch (result) {
    case cuda::CUDA_ERROR_INVALID_IMAGE:
    case cuda::CUDA_ERROR_INVALID_PTX:
      fail(codes::kCudaFailed, fmt::format("{}: {} failed: {}\n{}", context.device(), tried,
                                           cuda::error_text(context.api(), result), log));
    case cuda::CUDA_ERROR_NO_BINARY_FOR_GPU:
    case cuda::CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case cuda::CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
      fail(codes::kUnsupportedProgram,
           fmt::format("{}: {} failed: {}\n{}", context.device(), tried,
                       cuda::error_text(context.api(), result), log),
           {.location = {},
            .node = "",
            .fix = "a newer driver, or ptxas on this machine, so that the code is assembled here"});
    default:
      context.fail_with(result, tried);
  }
}

CudaModule::~CudaModule() {
  if (is_forked()) return;
  const CudaContext::Scope scope(context_);
  context_.api().module_unload(module_);
}

cuda::CUfunction CudaModule::find(const std::string& name) const {
  cuda::CUfunction function = nullptr;
  const auto result = context_.api().module_get_function(&function, module_, name.c_str());
  return result == cuda::CUDA_SUCCESS ? function : nullptr;
}

}  // namespace braze
