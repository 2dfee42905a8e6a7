// unscatter.h — writes a scatter to a small result as a reduction with an index map, which a GPU
// computes for all elements at once.
#pragma once

#include "ir/graph/graph.h"

namespace braze {

/// The graph without such a scatter: element d of the result is x[d] combined with the updates
/// whose index is d, or the last of them, at the cost of one comparison an update and result
/// element. A scatter that takes over the memory of x stays where its terms touch little of it.
/// Indices out of range are clamped, as gather clamps them.
Graph unscatter(const Graph& graph);

}  // namespace braze
