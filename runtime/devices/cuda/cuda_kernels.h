// cuda_kernels.h — a program's PTX and machine code, loaded on a GPU.
#pragma once

#include <memory>

#include "runtime/devices/cuda/cuda_context.h"
#include "runtime/devices/cuda/cuda_system.h"

namespace braze {

/// Loads the artifacts of `program`, of the formats "ptx" and "cubin". Throws Unsupported if the
/// GPU cannot run them, DataLoss if the program is malformed, Device with the compiler's messages
/// if the driver cannot compile them.
std::unique_ptr<LoadedProgram> load_cuda_kernels(CudaContext& context, const GpuFacts& gpu,
                                                 std::shared_ptr<const Program> program);

}  // namespace braze
