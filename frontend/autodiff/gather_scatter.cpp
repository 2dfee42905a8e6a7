// gather_scatter.cpp — gradients of gathers and scatters. Each is made of the other.
#include <numeric>
#include <optional>

#include "frontend/autodiff/backward_p.h"
#include "ir/graph/build.h"

namespace braze::autodiff {
namespace {

/// The values of x at the places to which a scatter's terms go.
NodeId gathered(Backward& b, NodeId x, const ScatterOp& op) {
  return build::gather(b.graph, x, b.node.operands[1], op.axis, b.where());
}
NodeId scattered(Backward& b, std::optional<Monoid> monoid, NodeId x, NodeId updates,
                 const ScatterOp& op) {
  return build::scatter(b.graph, {monoid, op.axis}, x, b.node.operands[1], updates, b.where());
}

/// The last term for each place gets the gradient of that place. x gets those of the other
/// places.
void replaced_gradient(Backward& b, const ScatterOp& op) {
  const TensorType& terms = b.operand_type(2);
  b.out[0] = scattered(b, std::nullopt, b.gradient, b.zeros(terms), op);
  if (!b.wants(2)) return;
  // The terms' numbers are scattered too, to learn which term stayed in each place.
  const NodeId indices = b.node.operands[1];
  const Shape shape = b.type(indices).shape;  // a copy, because the graph grows
  const NodeId number = build::reshape(
      b.graph, build::iota(b.graph, {DType::I64, Shape({shape.numel()})}, 0, b.where()), shape,
      b.where());
  const NodeId none = b.zeros({DType::I64, Shape({b.operand_type(0).shape[at(op.axis)]})});
  const NodeId last = build::scatter(b.graph, {std::nullopt, 0}, none, indices, number, b.where());
  const NodeId stayed =
      b.map(ElementwiseOp::eq, {build::gather(b.graph, last, indices, 0, b.where()), number});
  Axes64 axes(shape.rank());
  std::iota(axes.begin(), axes.end(), op.axis);
  b.out[2] =
      b.map(ElementwiseOp::select, {build::broadcast(b.graph, stayed, terms.shape, axes, b.where()),
                                    gathered(b, b.gradient, op), b.zeros(terms)});
}

/// The product of all other terms is computed by a division, so a term that is zero gets no
/// usable gradient.
void scattered_product_gradient(Backward& b, const ScatterOp& op) {
  b.out[0] = scattered(b, Monoid::Prod, b.gradient, b.node.operands[2], op);
  if (b.wants(2))
    b.out[2] =
        b.map(ElementwiseOp::div,
              {gathered(b, b.map(ElementwiseOp::mul, {b.gradient, b.id}), op), b.node.operands[2]});
}

/// At each place, the gradient is shared by the elements that are greatest (or least) among x and
/// the terms.
void scattered_extreme_gradient(Backward& b, const ScatterOp& op) {
  const NodeId x = b.node.operands[0], terms = b.node.operands[2];
  const DType wide = compute_type(b.type(x).dtype);
  const NodeId zero = b.scalar(wide, 0), one = b.scalar(wide, 1);
  const auto counted = [&](NodeId hit) { return b.map(ElementwiseOp::select, {hit, one, zero}); };
  const NodeId stays = b.map(ElementwiseOp::eq, {x, b.id});
  const NodeId hits = b.map(ElementwiseOp::eq, {terms, gathered(b, b.id, op)});
  const NodeId count = scattered(b, Monoid::Sum, counted(stays), counted(hits), op);
  const NodeId share = b.map(ElementwiseOp::div, {b.convert(b.gradient, wide), count});
  const DType narrow = b.type(x).dtype;
  b.out[0] = b.convert(b.map(ElementwiseOp::select, {stays, share, zero}), narrow);
  if (b.wants(2))
    b.out[2] =
        b.convert(b.map(ElementwiseOp::select, {hits, gathered(b, share, op), zero}), narrow);
}

}  // namespace

void backward(Backward& b, const GatherOp& op) {
  b.out[0] = build::scatter_add(b.graph, b.zeros(b.operand_type(0)), b.node.operands[1], b.gradient,
                                op.axis, b.where());
}

void backward(Backward& b, const ScatterOp& op) {
  if (!op.monoid) return replaced_gradient(b, op);
  switch (*op.monoid) {
    case Monoid::Sum:
      b.out[0] = b.gradient;
      if (b.wants(2)) b.out[2] = gathered(b, b.gradient, op);
      break;
    case Monoid::Prod:
      scattered_product_gradient(b, op);
      break;
    case Monoid::Max:
    case Monoid::Min:
      scattered_extreme_gradient(b, op);
      break;
    case Monoid::And:
    case Monoid::Or:
      break;
  }
}

}  // namespace braze::autodiff
