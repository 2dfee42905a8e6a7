#include "ir/graph/reordered.h"

namespace braze {

std::optional<NodeId> stored_in_other_order(const Graph& graph, NodeId node) {
  const auto* back = graph[node].as<TransposeOp>();
  const auto* there = back ? graph[graph[node].operands[0]].as<TransposeOp>() : nullptr;
  if (!there) return std::nullopt;
  for (size_t i = 0; i < back->permutation.size(); ++i)
    if (there->permutation[static_cast<size_t>(back->permutation[i])] != static_cast<int64_t>(i))
      return std::nullopt;
  return graph[node].operands[0];
}

bool is_movement(const Node& node) {
  return node.as<TransposeOp>() || node.as<ReshapeOp>() || node.as<BroadcastOp>() ||
         node.as<SliceOp>() || node.as<PadOp>() || node.as<WindowsOp>() || node.as<ReverseOp>();
}

std::optional<NodeId> reordered_source(const Graph& graph, NodeId factor) {
  for (; is_movement(graph[factor]); factor = graph[factor].operands[0])
    if (const auto stored = stored_in_other_order(graph, factor)) return stored;
  return std::nullopt;
}

}  // namespace braze
