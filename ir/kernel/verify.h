// verify.h — every way in which a kernel can be wrong: rules K1 to K16, on a GPU also G1 to G9.
#pragma once

#include <vector>

#include "ir/code/check.h"
#include "ir/code/code.h"

namespace braze {

/// Everything wrong with `kernel`; empty if it is sound. Accesses that are not proven to stay
/// inside go to `notes`, where that is given. Never throws.
std::vector<Diagnostic> verify(const Kernel& kernel, std::vector<Diagnostic>* notes = nullptr);

/// The greatest number of a kernel's members.
inline constexpr int64_t kMostMembers = 64;
/// Bytes of the parameters of a GPU's entry function for so many members, and the most there are.
int64_t parameter_bytes(const KernelCode& kernel, int64_t members);
inline constexpr int64_t kMostParameterBytes = 4096;

}  // namespace braze
