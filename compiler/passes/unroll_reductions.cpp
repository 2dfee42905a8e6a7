#include "compiler/passes/unroll_reductions.h"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "ir/graph/build.h"
#include "ir/graph/rewrite.h"
#include "ir/ops/monoid.h"

namespace braze {

namespace {

bool is_expression(const Node& node) {
  return node.as<MapOp>() || node.as<BroadcastOp>() || node.as<ReshapeOp>() ||
         node.as<TransposeOp>() || node.as<SliceOp>();
}

bool reduces(const Node& node) { return node.as<ReduceOp>() || node.as<ArgReduceOp>(); }

// For every node: whether a reduction reads it, as it is or after expressions.
std::vector<bool> reduced_nodes(const Graph& graph) {
  std::vector<bool> out(graph.size(), false);
  for (uint32_t i = static_cast<uint32_t>(graph.size()); i-- > 0;) {
    const Node& node = graph[NodeId{i}];
    if (!reduces(node) && !(is_expression(node) && out[i])) continue;
    for (const NodeId operand : node.operands) out[operand.index] = true;
  }
  return out;
}

int64_t most_elements(const Graph& graph, NodeId node) {
  return graph[node].type.shape.numel().range().max;
}

// The extents of the reduced axes, if these have at least one element together, and at most `most`.
std::optional<std::vector<int64_t>> few(const Shape& shape, const std::vector<int64_t>& axes,
                                        int64_t most) {
  std::vector<int64_t> extents;
  int64_t count = 1;
  for (const int64_t axis : axes) {
    const auto extent = shape[static_cast<size_t>(axis)].as_constant();
    if (!extent || *extent < 1 || *extent > most) return std::nullopt;
    extents.push_back(*extent);
    count *= *extent;
    if (count > most) return std::nullopt;
  }
  return extents;
}

bool is_unrolled(const Graph& graph, const Node& node) {
  const auto* reduce = node.as<ReduceOp>();
  return reduce && few(graph[node.operands[0]].type.shape, reduce->axes, kMostUnrolled);
}

// Whether a value is larger than all values in memory from which expressions make its operands.
bool is_larger(const Graph& graph, NodeId value) {
  const int64_t own = most_elements(graph, value);
  std::set<NodeId> seen;
  std::vector<NodeId> open = graph[value].operands;
  while (!open.empty()) {
    const NodeId node = open.back();
    open.pop_back();
    if (!seen.insert(node).second) continue;
    if (is_expression(graph[node]) || is_unrolled(graph, graph[node]))
      open.insert(open.end(), graph[node].operands.begin(), graph[node].operands.end());
    else if (most_elements(graph, node) >= own)
      return false;
  }
  return true;
}

NodeId unrolled(const Rewriting& step, const ReduceOp& op, const std::vector<int64_t>& extents) {
  Graph& graph = step.result;
  const SourceLocation where = step.node.location;
  const NodeId operand = step.operands[0];
  const TensorType type = graph[operand].type;
  const DType sums = accumulation_type(op.monoid, type.dtype);

  std::vector<Expr> starts(type.shape.rank(), Expr(0));
  std::vector<Expr> limits(type.shape.begin(), type.shape.end());
  const std::vector<int64_t> strides(type.shape.rank(), 1);
  std::vector<int64_t> at(op.axes.size(), 0);
  std::optional<NodeId> sum;
  for (bool more = true; more;) {
    for (size_t i = 0; i < at.size(); ++i) {
      starts[static_cast<size_t>(op.axes[i])] = at[i];
      limits[static_cast<size_t>(op.axes[i])] = at[i] + 1;
    }
    NodeId term = build::slice(graph, operand, starts, limits, strides, where);
    term = build::reshape(graph, term, step.node.type.shape, where);
    if (sums != type.dtype) term = build::convert(graph, term, sums, where);
    sum = sum ? build::map(graph, info(op.monoid).combine, {*sum, term}, where) : term;
    more = false;
    for (size_t i = at.size(); i-- > 0 && !more;) {
      more = ++at[i] < extents[i];
      if (!more) at[i] = 0;
    }
  }
  return sums == type.dtype ? *sum : build::convert(graph, *sum, type.dtype, where);
}

// Whether expressions of the operand's shape use a value that is broadcast along the axis and that
// should not be in memory, because it is larger than what it is made of.
bool is_shared_along(const Graph& graph, NodeId reduction, int64_t axis) {
  const Node& node = graph[reduction];
  std::set<NodeId> seen;
  std::vector<NodeId> open = node.operands;
  while (!open.empty()) {
    const NodeId id = open.back();
    open.pop_back();
    if (!seen.insert(id).second) continue;
    if (graph[id].as<MapOp>()) {
      open.insert(open.end(), graph[id].operands.begin(), graph[id].operands.end());
      continue;
    }
    const auto* broadcast = graph[id].as<BroadcastOp>();
    if (!broadcast) continue;
    NodeId from = graph[id].operands[0];
    const auto found = std::ranges::find(broadcast->axes, axis);
    const auto place = static_cast<size_t>(found - broadcast->axes.begin());
    const bool is_new =
        found == broadcast->axes.end() || graph[from].type.shape[place].is_constant(1);
    while (graph[from].as<ReshapeOp>()) from = graph[from].operands[0];
    if (is_new && graph[from].as<MapOp>() && is_larger(graph, from)) return true;
  }
  return false;
}

// A kept axis whose elements should be reduced apart from each other. Nothing that the reduction
// reads is in memory at that size.
std::optional<int64_t> shared_axis(const Graph& graph, NodeId reduction, const ReduceOp& op) {
  if (!is_larger(graph, graph[reduction].operands[0])) return std::nullopt;
  const Shape& shape = graph[graph[reduction].operands[0]].type.shape;
  for (int64_t axis = 0; axis < static_cast<int64_t>(shape.rank()); ++axis) {
    const auto extent = shape[static_cast<size_t>(axis)].as_constant();
    if (extent && *extent > 1 && *extent <= kMostUnrolled &&
        std::ranges::find(op.axes, axis) == op.axes.end() &&
        is_shared_along(graph, reduction, axis))
      return axis;
  }
  return std::nullopt;
}

// A reduction for each element along the axis.
NodeId apart(const Rewriting& step, const ReduceOp& op, int64_t axis) {
  Graph& graph = step.result;
  const SourceLocation where = step.node.location;
  const Shape shape = graph[step.operands[0]].type.shape;
  std::vector<Expr> starts(shape.rank(), Expr(0)), limits = shape.dims();
  const std::vector<int64_t> strides(shape.rank(), 1);
  std::vector<NodeId> parts;
  const auto at = static_cast<size_t>(axis);
  for (int64_t i = 0; i < *shape[at].as_constant(); ++i) {
    starts[at] = i, limits[at] = i + 1;
    const NodeId part = build::slice(graph, step.operands[0], starts, limits, strides, where);
    parts.push_back(build::reduce(graph, op.monoid, part, op.axes, where));
  }
  const auto before = std::ranges::count_if(op.axes, [&](int64_t a) { return a < axis; });
  return build::concat(graph, std::move(parts), axis - before, where);
}

}  // namespace

Graph unroll_reductions(const Graph& graph) {
  const std::vector<bool> reduced = reduced_nodes(graph);
  return rewrite(graph, [&](const Rewriting& step) {
    const auto* reduce = step.node.as<ReduceOp>();
    if (!reduce) return step.keep();
    if (const auto axis = shared_axis(graph, step.id, *reduce)) return apart(step, *reduce, *axis);
    if (!reduced[step.id.index]) return step.keep();
    const Shape& shape = graph[step.node.operands[0]].type.shape;
    auto extents = few(shape, reduce->axes, kMostOfLarger);
    if (extents && !few(shape, reduce->axes, kMostUnrolled) && !is_larger(graph, step.id))
      extents.reset();
    return extents ? unrolled(step, *reduce, *extents) : step.keep();
  });
}

}  // namespace braze
