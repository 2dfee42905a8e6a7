// finished.h — from a graph under construction to the one that is compiled.
#pragma once

#include <vector>

#include "ir/graph/graph.h"

namespace braze::detail {

/// The node for `node`, of a graph under construction, on operands of a finished graph. Nodes that
/// only gradients consider (`stop_gradient`, parts to compute again) have no node of their own.
/// Bitcasts that cancel remain, as dead nodes.
NodeId rebuild_finished(Graph& graph, const Node& node, std::vector<NodeId> operands);

}  // namespace braze::detail
