#include "frontend/builder/finished.h"

#include "ir/graph/build.h"

namespace braze::detail {

NodeId rebuild_finished(Graph& graph, const Node& node, std::vector<NodeId> operands) {
  if (const auto* barrier = node.as<BarrierOp>(); barrier && barrier->recompute) return operands[0];
  // A stop_gradient is two bitcasts that cancel each other.
  const auto is_bitcast = [](const Node& n) {
    const auto* map = n.as<MapOp>();
    return map && map->op == ElementwiseOp::bitcast;
  };
  if (is_bitcast(node) && is_bitcast(graph[operands[0]])) {
    const NodeId source = graph[operands[0]].operands[0];
    if (graph[source].type.dtype == node.type.dtype) return source;
  }
  return build::rebuild(graph, node, std::move(operands));
}

}  // namespace braze::detail
