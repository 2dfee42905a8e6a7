// interpret.h — runs a loop tree, turn by turn as it stands there. What steps make of a tree is
// tested against it.
#pragma once

#include <map>

#include "compiler/loops/tree.h"
#include "ir/graph/sizes.h"
#include "ir/values/host_tensor.h"

namespace braze {

namespace codes {
inline constexpr Code kUnfinishedValue{
    "unfinished-value", ErrorKind::Internal,
    "A task of a loop tree reads what the loops before it have not finished."};
}  // namespace codes

/// The tensors that the tree's stores write, by node. `memory` has those that it reads. Reading a
/// reduction before all of its terms are combined is an error.
std::map<NodeId, HostTensor> interpret(const LoopTree& tree, const Graph& graph, const Sizes& sizes,
                                       const std::map<NodeId, const HostTensor*>& memory);

}  // namespace braze
