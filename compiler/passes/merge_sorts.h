// merge_sorts.h — turns sorts into ranks within short pieces and merges of pieces.
//
// Each step is made of elementwise ops, gathers and sums, so that every device sorts by the kernels
// that it has for these. The order is the same everywhere, because keys are compared as integers
// and equal keys keep their order.
#pragma once

#include "ir/graph/graph.h"

namespace braze {

/// The graph without argsort.
Graph merge_sorts(const Graph& graph);

}  // namespace braze
