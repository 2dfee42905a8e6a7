// gradient.h — reverse mode differentiation on the Graph.
//
// From the loss backwards, every node turns the gradient of its result into gradients of its
// operands. Elementwise rows do this by the table's GRAD, movement ops by the opposite movement,
// and so on. Some formula rows have no GRAD, and are differentiated through their body. The
// gradients are ordinary nodes of the same graph. They get the source lines of the nodes that they
// belong to.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "ir/graph/graph.h"

namespace braze {

/// For a custom call and the gradient of its result: the gradients of its operands, of their types.
/// An empty id means that there is none.
using CustomBackward = std::function<std::vector<NodeId>(NodeId call, NodeId gradient)>;

/// d loss / d input for each of `inputs`, added to `graph`. `loss` is a floating scalar, and
/// `inputs` are floating. If the loss does not depend on an input, the gradient is zeros. Without
/// `custom`, a custom call through which a gradient flows is an error.
std::vector<NodeId> differentiate(Graph& graph, NodeId loss, std::span<const NodeId> inputs,
                                  const CustomBackward& custom = {});

/// Throws InvalidArgument: no gradient is known of a custom call.
[[noreturn]] void fail_no_gradient(const Node& call);

/// The nodes that `values` become if each of `from` is replaced by the corresponding node of `to`.
/// All of them are in `graph`. Nodes that do not depend on `from` are used as they are.
std::vector<NodeId> replace(Graph& graph, std::span<const NodeId> values,
                            std::span<const NodeId> from, std::span<const NodeId> to);

}  // namespace braze
