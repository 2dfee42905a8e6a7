// regular_indices.h — gathers and scatters at regular places become movements of axes.
//
// Frames of a signal, patches, strided rows and shifts are often written as a gather whose indices
// are sums of multiples of positions, such as 160 * frame + place. Nobody has to load such indices.
// The gather is a slice or windows, which other ops can read in place. Its gradient, a scatter with
// the same indices, is a sum over windows: it needs no search for the terms of a place.
#pragma once

#include "ir/graph/graph.h"

namespace braze {

/// The graph in which a gather or a scatter with a monoid is a movement of axes (and a reduction),
/// where its indices have at most two axes, increase by a positive constant along each of them, and
/// are inside of the axis for sure. Terms of a scatter are combined in another order.
Graph regular_indices(const Graph& graph);

}  // namespace braze
