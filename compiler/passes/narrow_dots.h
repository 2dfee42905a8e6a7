// narrow_dots.h — products that are too narrow for the tiles of matrix units become sums.
#pragma once

#include "ir/graph/graph.h"

namespace braze {

/// Products in batches with at most so many terms in a sum may be narrow.
inline constexpr int64_t kMostTermsOfNarrowDots = 128;

/// The graph in which batches of products with few columns and short sums, such as convolutions of
/// groups of channels, become elementwise products that are summed over the same axes. This is done
/// where the rows of all matrices lie side by side in memory, so that a thread of a GPU computes a
/// few neighbouring columns.
Graph narrow_dots(const Graph& graph);

}  // namespace braze
