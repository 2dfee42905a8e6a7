#include "compiler/passes/approximate.h"

#include <cmath>
#include <optional>

#include "ir/graph/build.h"
#include "ir/graph/rewrite.h"
#include "ir/graph/splat.h"

namespace braze {

namespace {

using enum ElementwiseOp;
using Replacement = std::optional<NodeId>;

// The operands of `id` if it is this row.
const std::vector<NodeId>* operands_of(const Graph& graph, NodeId id, ElementwiseOp op) {
  const auto* map = graph[id].as<MapOp>();
  return map && map->op == op ? &graph[id].operands : nullptr;
}

Replacement divide(const Rewriting& step) {
  Graph& graph = step.result;
  const Node divisor = graph[step.operands[1]];  // a copy: nodes are added below
  const auto* broadcast = divisor.as<BroadcastOp>();
  if (!broadcast || is_half(step.node.type.dtype)) return std::nullopt;
  const NodeId y = divisor.operands[0];
  if (graph[y].type.shape.numel() == divisor.type.shape.numel()) return std::nullopt;
  const double limit = std::ldexp(1.0, step.node.type.dtype == DType::F64 ? 1022 : 126);
  const auto value = splat(graph, y);
  if (value && !(std::abs(*value) >= 1 / limit && std::abs(*value) <= limit)) return std::nullopt;
  const SourceLocation where = step.node.location;
  const NodeId one = build::scalar(graph, step.node.type.dtype, 1, where);
  const NodeId inverse = build::map(graph, div, {one, y}, where);
  const NodeId spread =
      build::broadcast(graph, inverse, divisor.type.shape, broadcast->axes, where);
  return build::map(graph, mul, {step.operands[0], spread}, where);
}

Replacement join(const Rewriting& step, bool difference) {
  Graph& graph = step.result;
  const NodeId left = step.operands[0], right = step.operands[1];
  const SourceLocation where = step.node.location;
  const auto negated = [&](NodeId x) {
    return difference ? build::map(graph, neg, {x}, where) : x;
  };
  if (const auto* factors = operands_of(graph, left, mul)) {
    const NodeId x = (*factors)[0], y = (*factors)[1];
    return build::map(graph, fma, {x, y, negated(right)}, where);
  }
  if (const auto* factors = operands_of(graph, right, mul)) {
    const NodeId x = (*factors)[0], y = (*factors)[1];
    return build::map(graph, fma, {negated(x), y, left}, where);
  }
  return std::nullopt;
}

// If `id` is the product of a value and a constant, both of them.
std::optional<std::pair<NodeId, double>> scaled(const Graph& graph, NodeId id) {
  const auto* factors = operands_of(graph, id, mul);
  if (!factors) return std::nullopt;
  for (const size_t i : {0, 1})
    if (const auto value = splat(graph, (*factors)[i])) return std::pair((*factors)[1 - i], *value);
  return std::nullopt;
}

Replacement scale(const Rewriting& step) {
  Graph& graph = step.result;
  for (const size_t i : {0, 1}) {
    const auto outer = splat(graph, step.operands[i]);
    const auto inner = scaled(graph, step.operands[1 - i]);
    if (!outer || !inner) continue;
    const double a = std::abs(*outer), b = std::abs(inner->second);
    // Otherwise the product of the constants could be in range although x * a overflows or
    // underflows.
    const bool one_way =
        (a >= 1 && b >= 1 && a * b < 0x1p15) || (a <= 1 && b <= 1 && a * b > 0x1p-14);
    if (!one_way) return std::nullopt;
    const SourceLocation where = step.node.location;
    const NodeId both = build::scalar(graph, step.node.type.dtype, *outer * inner->second, where);
    return build::map(graph, mul, {inner->first, both}, where);
  }
  return std::nullopt;
}

Replacement approximated(const Rewriting& step) {
  const MapOp* map = step.node.as<MapOp>();
  if (!map || !is_floating(step.node.type.dtype)) return std::nullopt;
  if (map->op == div) return divide(step);
  if (map->op == add || map->op == sub) return join(step, map->op == sub);
  if (map->op == mul) return scale(step);
  return std::nullopt;
}

}  // namespace

Graph approximate(const Graph& graph) {
  return rewrite(graph, [](const Rewriting& step) {
    const Replacement found = approximated(step);
    return found ? *found : step.keep();
  });
}

}  // namespace braze
