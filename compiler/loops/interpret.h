// interpret.h — runs a loop tree, turn by turn, as it is written. The trees that steps make, and
// the programs that are emitted from trees, are tested against it.
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

/// Runs a sound tree on its tensors, which are given by number; tensors that are written may be
/// empty before. A task runs over all positions of its tile. Marks change nothing but the order of
/// sums. It is an error to read a reduction before its loops have ended, unless a rescale accounts
/// for it.
void interpret(const LoopTree& tree, const Sizes& sizes, std::vector<HostTensor>& tensors);

}  // namespace braze
