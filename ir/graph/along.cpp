#include "ir/graph/along.h"

#include "ir/graph/axis_lists.h"
#include "ir/graph/build.h"

namespace braze {

namespace {

/// `x`, whose axis `along` is cut into one block for each device; the blocks become the first axis.
NodeId blocks_first(Graph& graph, NodeId x, int64_t along, int64_t count, SourceLocation where) {
  std::vector<Expr> cut = graph[x].type.shape.dims();
  const auto at = static_cast<size_t>(along);
  cut[at] = floordiv(cut[at], count);
  cut.insert(cut.begin() + along, Expr(count));
  Axes order = axes_from(0, cut.size());
  order.erase(order.begin() + along);
  order.insert(order.begin(), along);
  const NodeId apart = build::reshape(graph, x, Shape(std::move(cut)), where);
  return along == 0 ? apart : build::transpose(graph, apart, std::move(order), where);
}

/// `x`, whose blocks along the first axis are joined along the axis `along` of the other axes.
NodeId blocks_joined(Graph& graph, NodeId x, int64_t along, SourceLocation where) {
  if (along > 0) {
    Axes order = axes_from(0, graph[x].type.shape.rank());
    order.erase(order.begin());
    order.insert(order.begin() + along, 0);
    x = build::transpose(graph, x, std::move(order), where);
  }
  std::vector<Expr> dims = graph[x].type.shape.dims();
  const auto at = static_cast<size_t>(along);
  dims[at + 1] = dims[at] * dims[at + 1];
  dims.erase(dims.begin() + along);
  return build::reshape(graph, x, Shape(std::move(dims)), where);
}

}  // namespace

NodeId all_gather_along(Graph& graph, const MeshAxis& axis, NodeId x, int64_t along,
                        SourceLocation where) {
  const CollectiveOp op{CollectiveKind::AllGather, axis};
  if (along == 0) return build::collective(graph, op, x, where);
  std::vector<Expr> dims = graph[x].type.shape.dims();
  dims.insert(dims.begin(), Expr(1));
  const NodeId block = build::reshape(graph, x, Shape(std::move(dims)), where);
  return blocks_joined(graph, build::collective(graph, op, block, where), along, where);
}

NodeId reduce_scatter_along(Graph& graph, const MeshAxis& axis, Monoid monoid, NodeId x,
                            int64_t along, SourceLocation where) {
  const CollectiveOp op{CollectiveKind::ReduceScatter, axis, monoid};
  if (along == 0) return build::collective(graph, op, x, where);
  const NodeId blocks = blocks_first(graph, x, along, axis.size, where);
  const NodeId own = build::collective(graph, op, blocks, where);
  std::vector<Expr> dims = graph[own].type.shape.dims();
  dims.erase(dims.begin());
  return build::reshape(graph, own, Shape(std::move(dims)), where);
}

NodeId all_to_all_along(Graph& graph, const MeshAxis& axis, NodeId x, int64_t split, int64_t join,
                        SourceLocation where) {
  const NodeId blocks = blocks_first(graph, x, split, axis.size, where);
  const CollectiveOp op{CollectiveKind::AllToAll, axis};
  return blocks_joined(graph, build::collective(graph, op, blocks, where), join, where);
}

NodeId own_block(Graph& graph, const MeshAxis& axis, NodeId x, int64_t along,
                 SourceLocation where) {
  const Expr extent = floordiv(graph[x].type.shape[static_cast<size_t>(along)], axis.size);
  const NodeId first =
      build::map(graph, ElementwiseOp::mul,
                 {build::axis_index(graph, axis, where), build::size(graph, extent, where)}, where);
  const NodeId within = build::iota(graph, {DType::I64, Shape({extent})}, 0, where);
  return build::gather(graph, x, build::map(graph, ElementwiseOp::add, {within, first}, where),
                       along, where);
}

}  // namespace braze
