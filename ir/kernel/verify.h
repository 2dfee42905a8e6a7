// verify.h — finds everything that is wrong with a kernel: rules K1 to K16, and on a GPU G1 to G10.
#pragma once

#include <vector>

#include "ir/code/check.h"
#include "ir/code/code.h"

namespace braze {

/// Everything that is wrong with `kernel`; empty if it is sound. Accesses that are not proven to
/// stay inside go to `notes`, if it is given. Never throws.
std::vector<Diagnostic> verify(const Kernel& kernel, std::vector<Diagnostic>* notes = nullptr);

/// The greatest number of a kernel's members.
inline constexpr int64_t kMostMembers = 128;
/// The bytes of the parameters of a GPU's entry function for this number of members, and the
/// greatest number of bytes that is allowed.
int64_t parameter_bytes(const KernelCode& kernel, int64_t members);
inline constexpr int64_t kMostParameterBytes = 4096;

}  // namespace braze
