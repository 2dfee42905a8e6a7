// verify.h — every way in which a kernel can be wrong: rules K1 to K15, on a GPU also G1 to G9.
#pragma once

#include <vector>

#include "ir/code/check.h"
#include "ir/code/code.h"

namespace braze {

/// Everything wrong with `kernel`; empty if it is sound. Accesses that are not proven to stay
/// inside go to `notes`, where that is given. Never throws.
std::vector<Diagnostic> verify(const Kernel& kernel, std::vector<Diagnostic>* notes = nullptr);

}  // namespace braze
