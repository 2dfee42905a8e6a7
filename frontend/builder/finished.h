// finished.h — from a graph under construction to the one that is compiled.
#pragma once

#include <vector>

#include "ir/graph/graph.h"

namespace braze::detail {

/// The node for `node`, of a graph under construction, on operands of a graph that is finished:
/// what only gradients look at (`stop_gradient`, parts to compute again) has no node of its own.
/// Bitcasts that cancel are left behind, dead.
NodeId rebuild_finished(Graph& graph, const Node& node, std::vector<NodeId> operands);

}  // namespace braze::detail
