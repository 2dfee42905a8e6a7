// cuda_module.h — PTX or machine code, loaded on a GPU.
#pragma once

#include <string>

#include "runtime/devices/cuda/cuda_context.h"

namespace braze {

/// A module of the CUDA driver.
class CudaModule {
 public:
  /// Must be called in a Scope. `what` names the code in messages. Throws Unsupported if the GPU
  /// cannot run it, and Device, with the compiler's messages, if the driver cannot compile it.
  CudaModule(CudaContext& context, const std::string& code, const std::string& what);
  ~CudaModule();
  CudaModule(const CudaModule&) = delete;
  CudaModule& operator=(const CudaModule&) = delete;

  /// Null if it has no function of this name.
  cuda::CUfunction find(const std::string& name) const;

 private:
  CudaContext& context_;
  cuda::CUmodule module_ = nullptr;
};

}  // namespace braze
