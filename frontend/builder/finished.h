// finished.h — turns a graph under construction into the one that is compiled.
#pragma once

#include <vector>

#include "ir/graph/graph.h"

namespace braze::detail {

/// Rebuilds `node` of a graph under construction in a finished graph, on `operands` of that graph.
/// Nodes that only matter for gradients (`stop_gradient`, parts to compute again) get no node of
/// their own. Bitcasts that cancel each other remain as dead nodes.
NodeId rebuild_finished(Graph& graph, const Node& node, std::vector<NodeId> operands);

}  // namespace braze::detail
