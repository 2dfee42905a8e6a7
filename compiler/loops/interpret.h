// interpret.h — runs a loop tree, turn by turn as it stands there. What steps make of a tree, and
// what is emitted of it, is tested against it.
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

/// Runs a sound tree on its tensors, by their numbers; those that are written may be empty before.
/// A task runs over all positions of its tile. Marks change nothing but the order of sums. Reading
/// a reduction before its loops have ended is an error, but where a rescale makes up for it.
void interpret(const LoopTree& tree, const Sizes& sizes, std::vector<HostTensor>& tensors);

}  // namespace braze
