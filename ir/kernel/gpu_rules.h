// gpu_rules.h — checks the rules that only kernels for GPUs have: G1 to G9 of docs/ir/languages.md.
#pragma once

#include <vector>

#include "braze/error.h"
#include "ir/code/code.h"

namespace braze {

/// The findings of a kernel whose names and index expressions are sound. Estimates of registers
/// that are over the budget go to `notes`.
std::vector<Diagnostic> check_gpu_rules(const KernelCode& kernel, std::vector<Diagnostic>& notes);

}  // namespace braze
