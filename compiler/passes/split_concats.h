// split_concats.h — a concatenation of very many parts becomes a concatenation of concatenations.
//
// A kernel finds the part of an element by comparing its index with the range of each part. The
// work for an element and the size of the body would therefore grow with the number of parts.
#pragma once

#include "ir/graph/graph.h"

namespace braze {

/// The graph in which no concatenation has more than kMostParts operands.
Graph split_concats(const Graph& graph);

inline constexpr size_t kMostParts = 32;

}  // namespace braze
