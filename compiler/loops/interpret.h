// interpret.h — runs a loop tree turn by turn, as it is written. Tests compare with it the trees
// that steps make and the programs that are emitted from trees.
#pragma once

#include <vector>

#include "compiler/loops/tree.h"
#include "ir/graph/sizes.h"
#include "ir/values/host_tensor.h"

namespace braze {

namespace codes {
inline constexpr Code kUnfinishedValue{
    "unfinished-value", ErrorKind::Internal,
    "A task of a loop tree reads a value that the loops before it have not finished."};
}  // namespace codes

/// Runs a sound tree on its tensors, which are given in the order of their numbers. Those that
/// are the same as other ones need not be given. A tensor that
/// the tree only writes may be empty before. A task runs at all positions of its tile. Marks change
/// nothing except the order of sums. Reading a reduction before its loops have ended is an error,
/// unless a rescale accounts for it.
void interpret(const LoopTree& tree, const Sizes& sizes, std::vector<HostTensor>& tensors);

}  // namespace braze
