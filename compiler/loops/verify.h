// verify.h — finds every way in which a loop tree can be wrong; verify.cpp lists the rules L1 to
// L11.
#pragma once

#include <vector>

#include "compiler/loops/tree.h"

namespace braze {

/// Everything that is wrong with `tree`; the list is empty if the tree is sound. Never throws.
std::vector<Diagnostic> verify(const LoopTree& tree);

}  // namespace braze
