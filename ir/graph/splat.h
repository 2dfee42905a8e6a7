// splat.h — constants whose elements are all equal.
#pragma once

#include <optional>

#include "ir/graph/graph.h"

namespace braze {

/// The value of a constant whose elements are all equal, also through broadcasts.
inline std::optional<double> splat(const Graph& graph, NodeId id) {
  while (graph[id].as<BroadcastOp>()) id = graph[id].operands[0];
  const auto* constant = graph[id].as<ConstantOp>();
  if (!constant || constant->value->numel() != 1) return std::nullopt;
  return constant->value->get_double(0);
}

}  // namespace braze
