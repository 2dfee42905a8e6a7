// split_concats.h — a concatenation of very many parts becomes one of concatenations.
//
// Which part an element comes from is decided by comparing its index with the range of each part,
// so that the work on an element and the size of the body grow with the number of parts.
#pragma once

#include "ir/graph/graph.h"

namespace braze {

/// The graph with no more than kMostParts operands to a concatenation.
Graph split_concats(const Graph& graph);

inline constexpr size_t kMostParts = 32;

}  // namespace braze
