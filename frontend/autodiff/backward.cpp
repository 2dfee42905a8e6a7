#include <algorithm>
#include <array>
#include <utility>

#include "compiler/passes/graph_emitter.h"
#include "frontend/autodiff/backward_p.h"
#include "ir/graph/build.h"

namespace braze::autodiff {

Axes64 other_axes(size_t rank, const Axes64& a, const Axes64& b) {
  const auto contains = [](const Axes64& axes, int64_t axis) {
    return std::ranges::find(axes, axis) != axes.end();
  };
  Axes64 out;
  for (int64_t i = 0; i < static_cast<int64_t>(rank); ++i)
    if (!contains(a, i) && !contains(b, i)) out.push_back(i);
  return out;
}

NodeId Backward::scalar(DType dtype, double value) {
  return build::scalar(graph, dtype, value, where());
}

NodeId Backward::map(ElementwiseOp op, std::vector<NodeId> operands) {
  return build::map(graph, op, std::move(operands), where());
}

NodeId Backward::convert(NodeId x, DType to) {
  // Conversion to f32 and back changes nothing, so a value that returns to its 16-bit dtype is
  // taken as it was.
  if (type(x).dtype == to) return x;
  const MapOp* map = graph[x].as<MapOp>();
  if (map && map->op == ElementwiseOp::convert) {
    const NodeId source = graph[x].operands[0];
    if (type(source).dtype == to && is_half(to) && type(x).dtype == DType::F32) return source;
  }
  return build::convert(graph, x, to, where());
}

NodeId Backward::zeros(const TensorType& like) {
  return build::broadcast_to(graph, scalar(like.dtype, 0), like.shape, where());
}

NodeId Backward::spread(NodeId x, const Shape& shape, const Axes64& axes) {
  return build::broadcast(graph, x, shape, other_axes(shape.rank(), axes), where());
}

void backward(Backward& b, const MapOp& op) {
  const ElementwiseInfo& row = info(op.op);
  if (op.op == ElementwiseOp::convert) {
    const DType from = b.operand_type(0).dtype;
    if (is_arithmetic_float(from)) b.out[0] = b.convert(b.gradient, from);
    return;
  }
  if (!row.gradient) return;
  const DType dtype = b.node.type.dtype;
  const DType wide = compute_type(dtype);
  GraphEmitter emitter(b.graph, b.where(), /*expand_formulas=*/true);
  const auto value = [&](NodeId id) {
    const bool floating = is_floating(b.type(id).dtype);
    return emitter.value(floating ? b.convert(id, wide) : id);
  };
  std::array<Scalar, 3> x;
  for (size_t i = 0; i < b.node.operands.size(); ++i) x[i] = value(b.node.operands[i]);
  const Gradients gradients = row.gradient(value(b.gradient), value(b.id), x[0], x[1], x[2]);
  for (size_t i = 0; i < b.out.size(); ++i)
    if (gradients.of[i] && b.wants(i))
      b.out[i] = b.convert(GraphEmitter::node(gradients.of[i]), dtype);
}

void backward(Backward&, const CustomCallOp&) {
  BRAZE_CHECK(false, "its gradient is a function of the user");
}

std::vector<NodeId> operand_gradients(Graph& graph, NodeId id, NodeId gradient,
                                      const std::vector<bool>& wanted) {
  Backward b{graph, id, graph[id], gradient, wanted, {}};
  b.out.resize(b.node.operands.size());
  std::visit([&](const auto& op) { backward(b, op); }, b.node.op);
  return std::move(b.out);
}

}  // namespace braze::autodiff
