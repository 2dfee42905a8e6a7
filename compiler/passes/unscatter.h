// unscatter.h — writes scatter_add as a sum with an index map, which tiling can serve.
//
// Cheaper in principle: tasks that own a range of rows, walk the list of indices in order and add
// what falls into their range, O(rows + updates) for each task and as deterministic. Tile IR can say
// it (an `if` on a loaded index, a place with it). What cannot is a Space: its tasks are loop forms,
// whose elements do not depend on each other, and scatter_add has none since its order matters. It
// takes a fusion of its own kind, with its rules for cost and updates in place.
#pragma once

#include "ir/graph/graph.h"

namespace braze {

/// The graph without scatter_add: element d of the result is x[d] plus the sum of the updates whose
/// index is d. Every device then adds in the order of the indices, at the cost of one comparison an
/// update and result element. Indices out of range are clamped, as gather clamps them.
Graph unscatter(const Graph& graph);

}  // namespace braze
