// reductions.cpp — gradients of reductions.
#include <utility>

#include "frontend/autodiff/backward_p.h"
#include "ir/graph/build.h"

namespace braze::autodiff {
namespace {

Shape with_last(std::vector<Expr> rows, const Expr& last) {
  rows.push_back(last);
  return Shape(std::move(rows));
}

/// The products along the last axis, which has `count` elements.
NodeId products_of_others(Backward& b, NodeId line, const std::vector<Expr>& rows,
                          const Expr& count) {
  const DType dtype = b.type(line).dtype;
  int64_t width = 1;
  while (width < count.range().max) width *= 2;
  const auto last_axis = [&](const Expr& last) {
    std::vector<Expr> all(rows.size(), Expr(0));
    all.push_back(last);
    return all;
  };
  const NodeId one = b.scalar(dtype, 1);
  std::vector<NodeId> levels = {build::pad(b.graph, line, one, last_axis(0),
                                           last_axis(Expr(width) - count),
                                           Axes64(rows.size() + 1, 0), b.where())};
  const auto every_second = [&](NodeId level, int64_t first, int64_t size) {
    std::vector<Expr> limits = rows;
    limits.emplace_back(size);
    Axes64 strides(rows.size(), 1);
    strides.push_back(2);
    return build::slice(b.graph, level, last_axis(first), std::move(limits), strides, b.where());
  };
  for (int64_t size = width; size > 1; size /= 2) {
    const NodeId level = levels.back();
    levels.push_back(
        b.map(ElementwiseOp::mul, {every_second(level, 0, size), every_second(level, 1, size)}));
  }
  NodeId others = build::broadcast_to(b.graph, one, with_last(rows, 1), b.where());
  for (int64_t size = 2; size <= width; size *= 2) {
    levels.pop_back();
    const NodeId level = levels.back();
    // The product without an element is its neighbour times the product without the pair.
    std::vector<NodeId> halves;
    for (const int64_t neighbour : {1, 0}) {
      const NodeId half = b.map(ElementwiseOp::mul, {others, every_second(level, neighbour, size)});
      Shape column = with_last(rows, size / 2);
      halves.push_back(build::reshape(b.graph, half, with_last(column.dims(), 1), b.where()));
    }
    const NodeId pairs =
        build::concat(b.graph, halves, static_cast<int64_t>(rows.size()) + 1, b.where());
    others = build::reshape(b.graph, pairs, with_last(rows, size), b.where());
  }
  std::vector<Expr> limits = rows;
  limits.push_back(count);
  return build::slice(b.graph, others, last_axis(0), std::move(limits), Axes64(rows.size() + 1, 1),
                      b.where());
}

/// Each element gets the product of all others. It is made from products of pairs, of pairs of
/// pairs and so on. There is no division, so it is right for zeros, and so are its own gradients.
/// Symbolic extents are padded to the power of two that their range does not exceed.
NodeId product_gradient(Backward& b, NodeId x, const TensorType& x_type, const Axes64& axes) {
  const DType wide = compute_type(x_type.dtype);
  const Axes64 kept = other_axes(x_type.shape.rank(), axes);
  Axes64 order = kept;
  order.insert(order.end(), axes.begin(), axes.end());
  std::vector<Expr> rows, moved;
  Expr count = 1;
  for (const int64_t axis : kept) rows.push_back(x_type.shape[at(axis)]);
  for (const int64_t axis : axes) count = count * x_type.shape[at(axis)];
  for (const int64_t axis : order) moved.push_back(x_type.shape[at(axis)]);

  const NodeId last = build::transpose(b.graph, b.convert(x, wide), order, b.where());
  const NodeId line = build::reshape(b.graph, last, with_last(rows, count), b.where());
  const NodeId others = products_of_others(b, line, rows, count);
  NodeId back = build::reshape(b.graph, others, Shape(std::move(moved)), b.where());
  Axes64 inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) inverse[at(order[i])] = static_cast<int64_t>(i);
  back = build::transpose(b.graph, back, inverse, b.where());
  const NodeId g = b.spread(b.convert(b.gradient, wide), x_type.shape, axes);
  return b.convert(b.map(ElementwiseOp::mul, {g, back}), x_type.dtype);
}

/// The gradient is divided equally among the elements that are the greatest (or least).
NodeId extreme_gradient(Backward& b, NodeId x, const TensorType& x_type, const Axes64& axes) {
  const DType wide = compute_type(x_type.dtype);
  const NodeId zero = b.scalar(wide, 0), one = b.scalar(wide, 1);
  const NodeId hit = b.map(ElementwiseOp::eq, {x, b.spread(b.id, x_type.shape, axes)});
  const NodeId hits = build::reduce(
      b.graph, Monoid::Sum, b.map(ElementwiseOp::select, {hit, one, zero}), axes, b.where());
  const NodeId share = b.map(ElementwiseOp::div, {b.convert(b.gradient, wide), hits});
  const NodeId spread_share = b.spread(share, x_type.shape, axes);
  return b.convert(b.map(ElementwiseOp::select, {hit, spread_share, zero}), x_type.dtype);
}

}  // namespace

void backward(Backward& b, const ReduceOp& op) {
  const NodeId x = b.node.operands[0];
  const TensorType x_type = b.type(x);
  switch (op.monoid) {
    case Monoid::Sum:
      b.out[0] = b.spread(b.gradient, x_type.shape, op.axes);
      break;
    case Monoid::Prod:
      b.out[0] = product_gradient(b, x, x_type, op.axes);
      break;
    case Monoid::Max:
    case Monoid::Min:
      b.out[0] = extreme_gradient(b, x, x_type, op.axes);
      break;
    case Monoid::And:
    case Monoid::Or:
      break;
  }
}

}  // namespace braze::autodiff
