#include "compiler/passes/share_divisors.h"

#include <cmath>
#include <optional>
#include <vector>

#include "ir/graph/build.h"
#include "ir/graph/coarse.h"
#include "ir/graph/rewrite.h"
#include "ir/graph/splat.h"

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

// Powers of two by which divisors are multiplied: they are 1 unless a divisor is so small or so
// large that its reciprocal is not a normal number.
NodeId scales_of(Graph& graph, NodeId divisors, SourceLocation where) {
  constexpr double kScale = 0x1p64, kOrdinary = 0x1p100;
  const TensorType& type = graph[divisors].type;
  const auto number = [&](double value) {
    return build::broadcast_to(graph, build::scalar(graph, DType::F32, value, where), type.shape,
                               where);
  };
  const auto select = [&](ElementwiseOp compare, NodeId size, double limit, double then,
                          NodeId otherwise) {
    const NodeId condition = build::map(graph, compare, {size, number(limit)}, where);
    return build::map(graph, ElementwiseOp::select, {condition, number(then), otherwise}, where);
  };
  const NodeId size = build::map(graph, ElementwiseOp::abs, {divisors}, where);
  const NodeId small = select(ElementwiseOp::lt, size, 1 / kOrdinary, kScale, number(1));
  return select(ElementwiseOp::gt, size, kOrdinary, 1 / kScale, small);
}

// The product, if the quotient may become one. `scaled` says that it must be right for divisors of
// every size.
std::optional<NodeId> multiplied(const Rewriting& step, bool scaled) {
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
  const auto axes = broadcast->axes;  // copies: nodes are added below
  const Shape shape = divisor.type.shape;
  const auto times = [&](NodeId x, NodeId factors) {
    if (numbers != shared) factors = build::reshape(graph, factors, source.type.shape, where);
    const NodeId spread = build::broadcast(graph, factors, shape, axes, where);
    return build::map(graph, ElementwiseOp::mul, {x, spread}, where);
  };
  NodeId divisors = numbers, product = step.operands[0];
  if (scaled) {
    const NodeId scales = scales_of(graph, numbers, where);
    divisors = build::map(graph, ElementwiseOp::mul, {numbers, scales}, where);
    product = times(product, scales);
  }
  const NodeId one = build::scalar(graph, DType::F32, 1, where);
  return times(product, build::map(graph, ElementwiseOp::div, {one, divisors}, where));
}

}  // namespace

Graph share_divisors(const Graph& graph, Precision precision) {
  const std::vector<bool> relaxed = relaxed_nodes(graph, precision), coarse = coarse_nodes(graph);
  return rewrite(graph, [&](const Rewriting& step) {
    const bool is_relaxed = relaxed[step.id.index];
    const bool may = is_relaxed || (precision != Precision::Strict && coarse[step.id.index]);
    const auto found = may ? multiplied(step, /*scaled=*/!is_relaxed) : std::nullopt;
    return found ? *found : step.keep();
  });
}

}  // namespace braze
