#include "compiler/passes/unscatter.h"

#include <numeric>

#include "ir/graph/build.h"
#include "ir/graph/rewrite.h"

namespace braze {

namespace {

// Elements of a result from which on a term takes longer in all of their sums (5e12 comparisons a
// second on an H100) than alone in its place (0.57 us, if all terms wait for each other there).
constexpr int64_t kMostElements = 3'000'000;

NodeId as_sum(const Rewriting& step, const ScatterAddOp& op) {
  Graph& graph = step.result;
  const SourceLocation where = step.node.location;
  const NodeId x = step.operands[0], indices = step.operands[1], updates = step.operands[2];
  const TensorType x_type = graph[x].type;
  const Shape index_shape = graph[indices].type.shape;
  const DType index_type = graph[indices].type.dtype;
  const Expr extent = x_type.shape[static_cast<size_t>(op.axis)];
  const auto axis = static_cast<size_t>(op.axis), index_rank = index_shape.rank();

  // The space of the sum: the result's axes before `axis`, the indices' axes, then the result's
  // axes from `axis` on.
  std::vector<Expr> dims(x_type.shape.begin(), x_type.shape.begin() + op.axis);
  dims.insert(dims.end(), index_shape.begin(), index_shape.end());
  dims.insert(dims.end(), x_type.shape.begin() + op.axis, x_type.shape.end());
  const Shape space(dims);
  const auto range = [](size_t from, size_t count) {
    std::vector<int64_t> axes(count);
    std::iota(axes.begin(), axes.end(), static_cast<int64_t>(from));
    return axes;
  };
  const size_t place = axis + index_rank;  // of the scattered axis
  const NodeId at = build::iota(graph, {index_type, space}, static_cast<int64_t>(place), where);
  const NodeId last =
      build::convert(graph, build::size(graph, extent - 1, where), index_type, where);
  NodeId clamped = build::map(graph, ElementwiseOp::min, {indices, last}, where);
  clamped = build::map(graph, ElementwiseOp::max,
                       {clamped, build::scalar(graph, index_type, 0, where)}, where);
  const NodeId index = build::broadcast(graph, clamped, space, range(axis, index_rank), where);
  std::vector<int64_t> update_axes = range(0, place);
  for (int64_t a : range(place + 1, x_type.shape.rank() - axis - 1)) update_axes.push_back(a);
  const NodeId spread = build::broadcast(graph, updates, space, update_axes, where);
  const NodeId hit = build::map(graph, ElementwiseOp::eq, {at, index}, where);
  const NodeId addend =
      build::map(graph, ElementwiseOp::select,
                 {hit, spread, build::scalar(graph, x_type.dtype, 0, where)}, where);
  // 16-bit updates are summed with x in f32 and rounded once.
  const DType sum_type = compute_type(x_type.dtype);
  const NodeId sum =
      build::reduce(graph, Monoid::Sum, build::convert(graph, addend, sum_type, where),
                    range(axis, index_rank), where);
  const NodeId total = build::map(graph, ElementwiseOp::add,
                                  {build::convert(graph, x, sum_type, where), sum}, where);
  return build::convert(graph, total, x_type.dtype, where);
}

}  // namespace

Graph unscatter(const Graph& graph) {
  return rewrite(graph, [](const Rewriting& step) {
    const auto* scatter = step.node.as<ScatterAddOp>();
    const bool small = step.node.type.shape.numel().range().max < kMostElements;
    return scatter && small ? as_sum(step, *scatter) : step.keep();
  });
}

}  // namespace braze
