// split_dots.h — products with few results and long sums, for CPUs and for machines with matrix
// units.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph/graph.h"
#include "ir/target/target.h"

namespace braze {

/// The sum of a batch of partial products in f32, of which each sums a part of the terms; nullopt
/// if the product of these factors should stay whole. `product` gives the result's dtype, label and
/// place in the source.
std::optional<NodeId> in_parts(Graph& graph, const std::vector<NodeId>& factors, const DotOp& dot,
                               const Node& product, const Target& target);

/// The graph in which products of 16-bit floats with too few tiles to occupy the target are divided
/// along a contracted axis: a batch of partial products in f32, and their sum. Products of few rows
/// stay whole if two blocks for each tile occupy the target, and products of one row always do.
/// With asynchronous units, products of few tiles have another number of parts if its estimate is
/// clearly lower. For products of tf32, order_factors compares the times.
///
/// On a CPU, products of f32 with more than 5,120 terms are divided into parts of about a
/// thousand, if their results are few beside their factors: the factors of a part stay in a core's
/// cache while all tasks of the part read them. The parts depend on extents alone.
Graph split_dots(const Graph& graph, const Target& target);

}  // namespace braze
