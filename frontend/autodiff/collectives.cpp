// collectives.cpp — gradients of collectives. The gradient is that of the sum of what all devices
// compute. If several devices use one value, then the walk sums up their parts.
#include "frontend/autodiff/backward_p.h"
#include "ir/graph/build.h"

namespace braze::autodiff {
namespace {

/// The block of the gradient that belongs to this device. Blocks have `extent` rows.
NodeId own_block(Backward& b, const MeshAxis& axis, const Expr& extent) {
  const NodeId place = build::axis_index(b.graph, axis, b.where());
  const NodeId first = b.map(ElementwiseOp::mul, {place, build::size(b.graph, extent, b.where())});
  const NodeId rows =
      b.map(ElementwiseOp::add,
            {build::iota(b.graph, {DType::I64, Shape({extent})}, 0, b.where()), first});
  return build::gather(b.graph, b.gradient, rows, 0, b.where());
}

}  // namespace

void backward(Backward& b, const CollectiveOp& op) {
  const TensorType x = b.operand_type(0);
  const int64_t n = op.axis.size;
  const auto together = [&](CollectiveKind kind, int64_t offset = 0) {
    return build::collective(b.graph, {kind, op.axis, Monoid::Sum, offset}, b.gradient, b.where());
  };
  switch (op.kind) {
    case CollectiveKind::AllReduce:  // a sum: `expand_collectives` leaves no others
      b.out[0] = b.gradient;
      break;
    case CollectiveKind::AllGather:
      b.out[0] = own_block(b, op.axis, x.shape[0]);
      break;
    case CollectiveKind::ReduceScatter:
      b.out[0] = together(CollectiveKind::AllGather);
      break;
    case CollectiveKind::BroadcastOver: {
      const NodeId is_root =
          b.map(ElementwiseOp::eq, {build::axis_index(b.graph, op.axis, b.where()),
                                    b.scalar(DType::I64, double(op.offset))});
      b.out[0] = b.map(
          ElementwiseOp::select,
          {build::broadcast_to(b.graph, is_root, x.shape, b.where()), b.gradient, b.zeros(x)});
      break;
    }
    case CollectiveKind::Permute:
      b.out[0] = together(CollectiveKind::Permute, (n - op.offset) % n);
      break;
    case CollectiveKind::AllToAll:
      b.out[0] = together(CollectiveKind::AllToAll);
      break;
  }
}

}  // namespace braze::autodiff
