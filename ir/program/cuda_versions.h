// cuda_versions.h — finds out which drivers can load a program's GPU code.
#pragma once

#include <string>

#include "ir/program/program.h"

namespace braze {

/// The oldest CUDA release whose driver can load the program. For PTX it is the release whose
/// driver compiles it, with the branch of NVIDIA's Linux drivers: "CUDA 12.1 (530)". For machine
/// code it is the major release of the assembler: "CUDA 13". Empty if the program is not for GPUs.
std::string minimum_driver(const Program& program);

}  // namespace braze
