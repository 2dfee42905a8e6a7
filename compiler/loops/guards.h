// guards.h — which running values bodies must not read as long as they have seen no element.
#pragma once

#include <vector>

#include "compiler/loops/tree.h"

namespace braze {

/// By number of a value of the tree: whether it is a fold whose identity would make something
/// infinite (or NaN) in a body that reads it while it is running. Bodies then read 0 in place of
/// the identity (docs/design/0003-loop-tree.md, section 3). A user's own guard, such as
/// `max(m, -1e30)`, makes this unnecessary, and is no longer undone by a factor after the loop that
/// is beyond all numbers.
std::vector<bool> guarded_values(const LoopTree& tree);

}  // namespace braze
