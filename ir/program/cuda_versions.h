// cuda_versions.h — which drivers load a program's GPU code.
#pragma once

#include <string>

#include "ir/program/program.h"

namespace braze {

/// "CUDA 12.1 (530)": the oldest CUDA release, and the branch of NVIDIA's Linux drivers that came
/// with it, whose driver compiles the program's PTX; "CUDA 13" where machine code only needs the
/// major release of its assembler; empty for what is not for GPUs.
std::string minimum_driver(const Program& program);

}  // namespace braze
