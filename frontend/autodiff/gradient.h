// gradient.h — reverse mode differentiation on the Graph.
//
// From the loss backwards, every node hands the gradient of its result to its operands: the table's
// GRAD for elementwise rows, the transposed movement for movement ops, and so on. Formula rows that
// are differentiated through their body are replaced by it first. The gradient is made of ordinary
// nodes of the same graph, located where the node they come from is.
#pragma once

#include <span>
#include <vector>

#include "ir/graph/graph.h"

namespace braze {

/// d loss / d input for each of `inputs`, added to `graph`. `loss` is a floating scalar; `inputs`
/// are floating. An input that the loss does not depend on gets zeros.
std::vector<NodeId> differentiate(Graph& graph, NodeId loss, std::span<const NodeId> inputs);

/// The nodes that stand for `values` when each of `from` is replaced by the `to` beside it. All in
/// `graph`, where what does not depend on `from` stays as it is.
std::vector<NodeId> replace(Graph& graph, std::span<const NodeId> values,
                            std::span<const NodeId> from, std::span<const NodeId> to);

}  // namespace braze
