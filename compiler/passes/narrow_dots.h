// narrow_dots.h — products that no tile of a matrix unit fits, as sums.
#pragma once

#include "ir/graph/graph.h"

namespace braze {

/// The graph in which batches of products with a few columns each and short sums (what groups of
/// channels have of a window) are products of elements, summed over the same axes, where the rows
/// of all matrices lie side by side: a thread of a GPU then computes a few columns of neighbours.
Graph narrow_dots(const Graph& graph);

}  // namespace braze
