#include "compiler/passes/share_divisors.h"

#include <cmath>
#include <optional>
#include <vector>

#include "compiler/passes/match.h"
#include "ir/graph/build.h"
#include "ir/graph/rewrite.h"

namespace braze {

namespace {

// The least number of elements that have to share a divisor.
constexpr int64_t kManySharers = 16;

// Whether a value is the result of a reduction. Compared with its many terms, a division costs
// nothing.
bool is_reduction(const Graph& graph, NodeId id) {
  while (graph[id].as<ReshapeOp>()) id = graph[id].operands[0];
  return graph[id].as<ReduceOp>();
}

std::optional<NodeId> multiplied(const Rewriting& step) {
  Graph& graph = step.result;
  const auto* map = step.node.as<MapOp>();
  if (!map || map->op != ElementwiseOp::div || step.node.type.dtype != DType::F32)
    return std::nullopt;
  if (splat(graph, step.operands[0])) return std::nullopt;
  const SourceLocation where = step.node.location;
  if (const auto number = splat(graph, step.operands[1])) {
    const auto reciprocal = static_cast<float>(1 / *number);
    if (!std::isnormal(reciprocal) || is_reduction(graph, step.operands[0])) return std::nullopt;
    const NodeId factor = build::scalar(graph, DType::F32, reciprocal, where);
    return build::map(graph, ElementwiseOp::mul, {step.operands[0], factor}, where);
  }
  const Node divisor = graph[step.operands[1]];  // a copy: nodes are added below
  const auto* broadcast = divisor.as<BroadcastOp>();
  if (!broadcast) return std::nullopt;
  const NodeId shared = divisor.operands[0];
  const auto elements = [&](const TensorType& type) { return type.shape.numel().range().max; };
  if (elements(graph[shared].type) > elements(divisor.type) / kManySharers) return std::nullopt;
  // The reciprocal is taken of the divisors as they were computed, before a reshape gave them axes
  // of one element.
  const Node source = graph[shared];
  const NodeId numbers = source.as<ReshapeOp>() ? source.operands[0] : shared;
  const NodeId one = build::scalar(graph, DType::F32, 1, where);
  NodeId reciprocal = build::map(graph, ElementwiseOp::div, {one, numbers}, where);
  if (numbers != shared) reciprocal = build::reshape(graph, reciprocal, source.type.shape, where);
  const NodeId spread =
      build::broadcast(graph, reciprocal, divisor.type.shape, broadcast->axes, where);
  return build::map(graph, ElementwiseOp::mul, {step.operands[0], spread}, where);
}

}  // namespace

Graph share_divisors(const Graph& graph, Precision precision) {
  const std::vector<bool> relaxed = relaxed_nodes(graph, precision);
  return rewrite(graph, [&](const Rewriting& step) {
    const auto found = relaxed[step.id.index] ? multiplied(step) : std::nullopt;
    return found ? *found : step.keep();
  });
}

}  // namespace braze
