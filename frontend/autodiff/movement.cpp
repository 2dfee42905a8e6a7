// movement.cpp — gradients of ops that move elements: each is the opposite movement.
#include <algorithm>
#include <utility>

#include "frontend/autodiff/backward_p.h"
#include "ir/graph/build.h"

namespace braze::autodiff {
namespace {

/// The length of `count` elements with `gap` others between each two. `count` may be 0.
Expr with_gaps(const Expr& count, int64_t gap) { return count + max(count - 1, 0) * gap; }

/// The gradient of the fill value. It fills every place that holds no element of operand 0.
template <class Fill>
NodeId filled_share(Backward& b, Fill&& filled) {
  const TensorType x = b.operand_type(0);
  const NodeId no = build::scalar_bits(b.graph, DType::Bool, 0, b.where());
  const NodeId yes = build::scalar_bits(b.graph, DType::Bool, 1, b.where());
  const NodeId is_filler = filled(build::broadcast_to(b.graph, no, x.shape, b.where()), yes);
  const NodeId share = b.map(ElementwiseOp::select, {is_filler, b.gradient, b.scalar(x.dtype, 0)});
  return build::reduce(b.graph, Monoid::Sum, share, other_axes(b.node.type.shape.rank(), {}),
                       b.where());
}

}  // namespace

void backward(Backward& b, const BroadcastOp& op) {
  const TensorType x = b.operand_type(0);
  // The gradient is summed over the new axes, and over those that had the extent 1.
  Axes64 summed = other_axes(b.node.type.shape.rank(), op.axes);
  for (size_t i = 0; i < op.axes.size(); ++i)
    if (!(x.shape[i] == b.node.type.shape[at(op.axes[i])])) summed.push_back(op.axes[i]);
  std::sort(summed.begin(), summed.end());
  NodeId g = b.gradient;
  if (!summed.empty()) g = build::reduce(b.graph, Monoid::Sum, g, summed, b.where());
  b.out[0] = b.type(g).shape == x.shape ? g : build::reshape(b.graph, g, x.shape, b.where());
}

void backward(Backward& b, const ReshapeOp&) {
  b.out[0] = build::reshape(b.graph, b.gradient, b.operand_type(0).shape, b.where());
}

void backward(Backward& b, const TransposeOp& op) {
  Axes64 inverse(op.permutation.size());
  for (size_t i = 0; i < inverse.size(); ++i)
    inverse[at(op.permutation[i])] = static_cast<int64_t>(i);
  b.out[0] = build::transpose(b.graph, b.gradient, inverse, b.where());
}

void backward(Backward& b, const ReverseOp& op) {
  b.out[0] = build::reverse(b.graph, b.gradient, op.axes, b.where());
}

void backward(Backward& b, const SliceOp& op) {
  const TensorType x = b.operand_type(0);
  const Shape& result = b.node.type.shape;
  std::vector<Expr> low = op.starts, high;
  Axes64 interior;
  for (size_t i = 0; i < x.shape.rank(); ++i) {
    interior.push_back(op.strides[i] - 1);
    high.push_back(x.shape[i] - op.starts[i] - with_gaps(result[i], interior.back()));
  }
  b.out[0] = build::pad(b.graph, b.gradient, b.scalar(x.dtype, 0), std::move(low), std::move(high),
                        std::move(interior), b.where());
}

void backward(Backward& b, const PadOp& op) {
  const TensorType x = b.operand_type(0);
  if (b.wants(0)) {
    std::vector<Expr> limits;
    Axes64 strides;
    for (size_t i = 0; i < x.shape.rank(); ++i) {
      limits.push_back(op.low[i] + with_gaps(x.shape[i], op.interior[i]));
      strides.push_back(op.interior[i] + 1);
    }
    b.out[0] =
        build::slice(b.graph, b.gradient, op.low, std::move(limits), std::move(strides), b.where());
  }
  if (b.wants(1)) {
    b.out[1] = filled_share(b, [&](NodeId from, NodeId fill) {
      return build::pad(b.graph, from, fill, op.low, op.high, op.interior, b.where());
    });
  }
}

void backward(Backward& b, const WindowsOp& op) {
  const TensorType x = b.operand_type(0);
  if (b.wants(0)) {
    WindowsOp back = op;
    std::swap(back.strides, back.gaps);
    for (int64_t& dilation : back.dilations) dilation = -dilation;
    for (Expr& low : back.low) low = -low;
    b.out[0] = build::windows(b.graph, b.gradient, b.scalar(x.dtype, 0), std::move(back), x.shape,
                              b.where());
  }
  if (b.wants(1)) {
    b.out[1] = filled_share(b, [&](NodeId from, NodeId fill) {
      return build::windows(b.graph, from, fill, op, b.node.type.shape, b.where());
    });
  }
}

void backward(Backward& b, const ConcatOp& op) {
  const size_t rank = b.node.type.shape.rank();
  std::vector<Expr> starts(rank, Expr(0)), limits = b.node.type.shape.dims();
  Expr position = 0;
  for (size_t i = 0; i < b.node.operands.size(); ++i) {
    starts[at(op.axis)] = position;
    position += b.operand_type(i).shape[at(op.axis)];
    limits[at(op.axis)] = position;
    if (b.wants(i))
      b.out[i] = build::slice(b.graph, b.gradient, starts, limits, Axes64(rank, 1), b.where());
  }
}

}  // namespace braze::autodiff
