// unscatter.h — writes scatter_add to a small result as a sum with an index map, which a GPU
// computes for all elements at once.
#pragma once

#include "ir/graph/graph.h"

namespace braze {

/// The graph without such a scatter_add: element d of the result is x[d] plus the sum of the
/// updates whose index is d, at the cost of one comparison an update and result element. Indices
/// out of range are clamped, as gather clamps them.
Graph unscatter(const Graph& graph);

}  // namespace braze
