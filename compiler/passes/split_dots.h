// split_dots.h — products with few results and long sums, for CPUs and for machines with matrix
// units.
#pragma once

#include "ir/graph/graph.h"
#include "ir/target/target.h"

namespace braze {

/// The graph in which products of 16-bit floats with too few tiles to occupy the target are divided
/// along a contracted axis: a batch of partial products in f32, and their sum. Products of few rows
/// stay whole if two blocks for each tile occupy the target, and products of one row always do.
///
/// On a CPU, products of f32 with more than 5,120 terms are divided into parts of about a
/// thousand, if their results are few beside their factors: the factors of a part stay in a core's
/// cache while all tasks of the part read them. The parts depend on extents alone.
Graph split_dots(const Graph& graph, const Target& target);

}  // namespace braze
