// verify.h — every way in which a loop tree can be wrong: rules L1 to L12 of verify.cpp.
#pragma once

#include <vector>

#include "compiler/loops/tree.h"

namespace braze {

/// Everything wrong with `tree`; empty if it is sound. Never throws.
std::vector<Diagnostic> verify(const LoopTree& tree);

}  // namespace braze
