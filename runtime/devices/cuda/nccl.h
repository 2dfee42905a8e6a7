// nccl.h — NVIDIA's library of collectives between GPUs, opened at run time. Nothing uses it yet
// but the report of what a machine has.
#pragma once

#include <string>

namespace braze::cuda {

/// "2.28.9"; empty where there is no libnccl.so.2.
std::string nccl_version();

}  // namespace braze::cuda
