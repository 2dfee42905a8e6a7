// regular_indices.h — gathers and scatters at regular places become movements of axes.
//
// Frames of a signal, patches, strided rows and shifts are often written as a gather whose indices
// are sums of multiples of positions, such as 160 * frame + place. Nobody has to load such indices.
// The gather is a slice or windows, which other ops can read in place. Its gradient, a scatter with
// the same indices, is a sum over windows: it needs no search for the terms of a place.
#pragma once

#include "ir/graph/graph.h"
#include "ir/target/target.h"

namespace braze {

/// The graph in which gathers are slices or windows, where their indices have at most two axes,
/// increase by a positive constant along each of them, and are inside of the axis for sure.
Graph regular_gathers(const Graph& graph);

/// The same for scatters that combine: the updates are moved to their places, combined with each
/// other in any order, and then with x. Elements of x without updates keep their bits. A scatter
/// stays if the sums would have many more terms than x and the updates have elements, or if it
/// takes over the memory of x and its updates reach little of that.
Graph regular_scatters(const Graph& graph, const Target& target);

}  // namespace braze
