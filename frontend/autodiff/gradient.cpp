#include "frontend/autodiff/gradient.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "compiler/passes/expand.h"
#include "compiler/passes/graph_emitter.h"
#include "frontend/builder/builder.h"
#include "ir/graph/build.h"
#include "ir/graph/shards.h"
#include "ir/support/text.h"

namespace braze {
namespace {

using Axes64 = std::vector<int64_t>;

size_t at(int64_t axis) { return static_cast<size_t>(axis); }

bool contains(const Axes64& axes, int64_t axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

/// The axes of a tensor of this rank that are in neither list.
Axes64 other_axes(size_t rank, const Axes64& a, const Axes64& b = {}) {
  Axes64 out;
  for (int64_t i = 0; i < static_cast<int64_t>(rank); ++i)
    if (!contains(a, i) && !contains(b, i)) out.push_back(i);
  return out;
}

/// The nodes on which `ends` depend, and `ends` themselves, in topological order, which is the
/// order of ids. The search does not go beyond `stops`.
std::vector<NodeId> ancestors(const Graph& graph, std::span<const NodeId> ends,
                              std::span<const NodeId> stops = {}) {
  std::vector<bool> reached(graph.size()), is_stop(graph.size());
  for (const NodeId end : ends) reached[end.index] = true;
  for (const NodeId stop : stops) is_stop[stop.index] = true;
  std::vector<NodeId> out;
  for (size_t i = graph.size(); i-- > 0;) {
    if (!reached[i]) continue;
    out.emplace_back(i);
    if (is_stop[i]) continue;
    for (const NodeId operand : graph[NodeId(i)].operands) reached[operand.index] = true;
  }
  std::reverse(out.begin(), out.end());
  return out;
}

/// The length of `count` elements with `gap` others between each two. `count` may be 0.
Expr with_gaps(const Expr& count, int64_t gap) { return count + max(count - 1, 0) * gap; }

/// The vector-Jacobian products of one node. The node is copied out of the graph first, because
/// nodes move when others are added.
class Backward {
 public:
  Backward(Graph& graph, NodeId id, NodeId gradient)
      : graph_(graph), id_(id), node_(graph[id]), g_(gradient) {}

  /// The gradient of each operand. An empty id means that there is none. Only the gradients of
  /// `wanted` operands are needed.
  std::vector<NodeId> operands(const std::vector<bool>& wanted) {
    wanted_ = &wanted;
    out_.assign(node_.operands.size(), NodeId());
    std::visit([this](const auto& op) { visit(op); }, node_.op);
    return std::move(out_);
  }

 private:
  // Shorthands. New nodes get the source line of this one.
  SourceLocation where() const { return node_.location; }
  const TensorType& type(NodeId id) const { return graph_[id].type; }
  TensorType operand_type(size_t i) const { return type(node_.operands[i]); }
  bool wants(size_t i) const { return (*wanted_)[i]; }
  NodeId scalar(DType dtype, double value) { return build::scalar(graph_, dtype, value, where()); }
  NodeId map(ElementwiseOp op, std::vector<NodeId> operands) {
    return build::map(graph_, op, std::move(operands), where());
  }
  NodeId convert(NodeId x, DType to) {
    // Conversion to f32 and back changes nothing, so a value that returns to its 16-bit dtype is
    // taken as it was.
    if (type(x).dtype == to) return x;
    const MapOp* map = graph_[x].as<MapOp>();
    if (map && map->op == ElementwiseOp::convert) {
      const NodeId source = graph_[x].operands[0];
      if (type(source).dtype == to && is_half(to) && type(x).dtype == DType::F32) return source;
    }
    return build::convert(graph_, x, to, where());
  }
  NodeId zeros(const TensorType& like) {
    return build::broadcast_to(graph_, scalar(like.dtype, 0), like.shape, where());
  }
  /// `x`, which was reduced along `axes`, broadcast along them again.
  NodeId spread(NodeId x, const Shape& shape, const Axes64& axes) {
    return build::broadcast(graph_, x, shape, other_axes(shape.rank(), axes), where());
  }

  // Leaves, and ops that have no gradient.
  void visit(const InputOp&) {}
  void visit(const ConstantOp&) {}
  void visit(const IotaOp&) {}
  void visit(const SizeOp&) {}
  void visit(const ArgReduceOp&) {}
  void visit(const RandomBitsOp&) {}

  void visit(const MapOp& op) {
    const ElementwiseInfo& row = info(op.op);
    if (op.op == ElementwiseOp::convert) {
      const DType from = operand_type(0).dtype;
      if (is_arithmetic_float(from)) out_[0] = convert(g_, from);
      return;
    }
    if (!row.gradient) return;
    const DType dtype = node_.type.dtype;
    const DType wide = compute_type(dtype);
    GraphEmitter emitter(graph_, where(), /*expand_formulas=*/true);
    const auto value = [&](NodeId id) {
      const bool floating = is_floating(type(id).dtype);
      return emitter.value(floating ? convert(id, wide) : id);
    };
    std::array<Scalar, 3> x;
    for (size_t i = 0; i < node_.operands.size(); ++i) x[i] = value(node_.operands[i]);
    const Gradients gradients = row.gradient(value(g_), value(id_), x[0], x[1], x[2]);
    for (size_t i = 0; i < out_.size(); ++i)
      if (gradients.of[i] && wants(i))
        out_[i] = convert(GraphEmitter::node(gradients.of[i]), dtype);
  }

  void visit(const BroadcastOp& op) {
    const TensorType x = operand_type(0);
    // The gradient is summed over the new axes, and over those that had the extent 1.
    Axes64 summed = other_axes(node_.type.shape.rank(), op.axes);
    for (size_t i = 0; i < op.axes.size(); ++i)
      if (!(x.shape[i] == node_.type.shape[at(op.axes[i])])) summed.push_back(op.axes[i]);
    std::sort(summed.begin(), summed.end());
    NodeId g = g_;
    if (!summed.empty()) g = build::reduce(graph_, Monoid::Sum, g, summed, where());
    out_[0] = type(g).shape == x.shape ? g : build::reshape(graph_, g, x.shape, where());
  }

  void visit(const ReshapeOp&) {
    out_[0] = build::reshape(graph_, g_, operand_type(0).shape, where());
  }

  void visit(const TransposeOp& op) {
    Axes64 inverse(op.permutation.size());
    for (size_t i = 0; i < inverse.size(); ++i)
      inverse[at(op.permutation[i])] = static_cast<int64_t>(i);
    out_[0] = build::transpose(graph_, g_, inverse, where());
  }

  void visit(const SliceOp& op) {
    const TensorType x = operand_type(0);
    const Shape& result = node_.type.shape;
    std::vector<Expr> low = op.starts, high;
    Axes64 interior;
    for (size_t i = 0; i < x.shape.rank(); ++i) {
      interior.push_back(op.strides[i] - 1);
      high.push_back(x.shape[i] - op.starts[i] - with_gaps(result[i], interior.back()));
    }
    out_[0] = build::pad(graph_, g_, scalar(x.dtype, 0), std::move(low), std::move(high),
                         std::move(interior), where());
  }

  void visit(const PadOp& op) {
    const TensorType x = operand_type(0);
    if (wants(0)) {
      std::vector<Expr> limits;
      Axes64 strides;
      for (size_t i = 0; i < x.shape.rank(); ++i) {
        limits.push_back(op.low[i] + with_gaps(x.shape[i], op.interior[i]));
        strides.push_back(op.interior[i] + 1);
      }
      out_[0] = build::slice(graph_, g_, op.low, std::move(limits), std::move(strides), where());
    }
    if (wants(1)) {
      out_[1] = filled_share([&](NodeId from, NodeId fill) {
        return build::pad(graph_, from, fill, op.low, op.high, op.interior, where());
      });
    }
  }

  void visit(const WindowsOp& op) {
    const TensorType x = operand_type(0);
    if (wants(0)) {
      WindowsOp back = op;
      std::swap(back.strides, back.gaps);
      for (int64_t& dilation : back.dilations) dilation = -dilation;
      for (Expr& low : back.low) low = -low;
      out_[0] = build::windows(graph_, g_, scalar(x.dtype, 0), std::move(back), x.shape, where());
    }
    if (wants(1)) {
      out_[1] = filled_share([&](NodeId from, NodeId fill) {
        return build::windows(graph_, from, fill, op, node_.type.shape, where());
      });
    }
  }

  /// The gradient of the fill value. It fills every place that holds no element of operand 0.
  template <class Fill>
  NodeId filled_share(Fill&& filled) {
    const TensorType x = operand_type(0);
    const NodeId no = build::scalar_bits(graph_, DType::Bool, 0, where());
    const NodeId yes = build::scalar_bits(graph_, DType::Bool, 1, where());
    const NodeId is_filler = filled(build::broadcast_to(graph_, no, x.shape, where()), yes);
    const NodeId share = map(ElementwiseOp::select, {is_filler, g_, scalar(x.dtype, 0)});
    return build::reduce(graph_, Monoid::Sum, share, other_axes(node_.type.shape.rank(), {}),
                         where());
  }

  void visit(const ConcatOp& op) {
    const size_t rank = node_.type.shape.rank();
    std::vector<Expr> starts(rank, Expr(0)), limits = node_.type.shape.dims();
    Expr position = 0;
    for (size_t i = 0; i < node_.operands.size(); ++i) {
      starts[at(op.axis)] = position;
      position += operand_type(i).shape[at(op.axis)];
      limits[at(op.axis)] = position;
      if (wants(i)) out_[i] = build::slice(graph_, g_, starts, limits, Axes64(rank, 1), where());
    }
  }

  void visit(const BarrierOp&) { out_[0] = g_; }
  void visit(const CustomCallOp&) { BRAZE_CHECK(false, "its gradient is a function of the user"); }
  // How a value is spread does not decide how its gradient is spread. The users of the gradient
  // decide it.
  void visit(const ConstrainOp&) { out_[0] = g_; }

  // Collectives. The gradient is that of the sum of what all devices compute. If several devices
  // use one value, then the walk below sums up their parts.
  void visit(const AxisIndexOp&) {}
  void visit(const CollectiveOp& op) {
    const TensorType x = operand_type(0);
    const int64_t n = op.axis.size;
    const auto together = [&](CollectiveKind kind, int64_t offset = 0) {
      return build::collective(graph_, {kind, op.axis, Monoid::Sum, offset}, g_, where());
    };
    switch (op.kind) {
      case CollectiveKind::AllReduce:  // a sum: `expand_collectives` leaves no others
        out_[0] = g_;
        break;
      case CollectiveKind::AllGather:
        out_[0] = own_block(op.axis, x.shape[0]);
        break;
      case CollectiveKind::ReduceScatter:
        out_[0] = together(CollectiveKind::AllGather);
        break;
      case CollectiveKind::BroadcastOver: {
        const NodeId is_root = map(ElementwiseOp::eq, {build::axis_index(graph_, op.axis, where()),
                                                       scalar(DType::I64, double(op.offset))});
        out_[0] = map(ElementwiseOp::select,
                      {build::broadcast_to(graph_, is_root, x.shape, where()), g_, zeros(x)});
        break;
      }
      case CollectiveKind::Permute:
        out_[0] = together(CollectiveKind::Permute, (n - op.offset) % n);
        break;
      case CollectiveKind::AllToAll:
        out_[0] = together(CollectiveKind::AllToAll);
        break;
    }
  }

  /// The block of the gradient that belongs to this device. Blocks have `extent` rows.
  NodeId own_block(const MeshAxis& axis, const Expr& extent) {
    const NodeId place = build::axis_index(graph_, axis, where());
    const NodeId first = map(ElementwiseOp::mul, {place, build::size(graph_, extent, where())});
    const NodeId rows =
        map(ElementwiseOp::add,
            {build::iota(graph_, {DType::I64, Shape({extent})}, 0, where()), first});
    return build::gather(graph_, g_, rows, 0, where());
  }

  void visit(const ReverseOp& op) { out_[0] = build::reverse(graph_, g_, op.axes, where()); }

  void visit(const GatherOp& op) {
    out_[0] =
        build::scatter_add(graph_, zeros(operand_type(0)), node_.operands[1], g_, op.axis, where());
  }

  void visit(const ScatterOp& op) {
    if (!op.monoid) return replaced_gradient(op);
    switch (*op.monoid) {
      case Monoid::Sum:
        out_[0] = g_;
        if (wants(2)) out_[2] = gathered(g_, op);
        break;
      case Monoid::Prod:
        scattered_product_gradient(op);
        break;
      case Monoid::Max:
      case Monoid::Min:
        scattered_extreme_gradient(op);
        break;
      case Monoid::And:
      case Monoid::Or:
        break;
    }
  }

  /// The values of x at the places to which a scatter's terms go.
  NodeId gathered(NodeId x, const ScatterOp& op) {
    return build::gather(graph_, x, node_.operands[1], op.axis, where());
  }
  NodeId scattered(std::optional<Monoid> monoid, NodeId x, NodeId updates, const ScatterOp& op) {
    return build::scatter(graph_, {monoid, op.axis}, x, node_.operands[1], updates, where());
  }

  /// The last term for each place gets the gradient of that place. x gets those of the other
  /// places.
  void replaced_gradient(const ScatterOp& op) {
    const TensorType& terms = operand_type(2);
    out_[0] = scattered(std::nullopt, g_, zeros(terms), op);
    if (!wants(2)) return;
    // The terms' numbers are scattered too, to learn which term stayed in each place.
    const NodeId indices = node_.operands[1];
    const Shape shape = type(indices).shape;  // a copy, because the graph grows
    const NodeId number = build::reshape(
        graph_, build::iota(graph_, {DType::I64, Shape({shape.numel()})}, 0, where()), shape,
        where());
    const NodeId none = zeros({DType::I64, Shape({operand_type(0).shape[at(op.axis)]})});
    const NodeId last = build::scatter(graph_, {std::nullopt, 0}, none, indices, number, where());
    const NodeId stayed =
        map(ElementwiseOp::eq, {build::gather(graph_, last, indices, 0, where()), number});
    Axes64 axes(shape.rank());
    std::iota(axes.begin(), axes.end(), op.axis);
    out_[2] =
        map(ElementwiseOp::select, {build::broadcast(graph_, stayed, terms.shape, axes, where()),
                                    gathered(g_, op), zeros(terms)});
  }

  /// The product of all other terms is computed by a division, so a term that is zero gets no
  /// usable gradient.
  void scattered_product_gradient(const ScatterOp& op) {
    out_[0] = scattered(Monoid::Prod, g_, node_.operands[2], op);
    if (wants(2))
      out_[2] = map(ElementwiseOp::div,
                    {gathered(map(ElementwiseOp::mul, {g_, id_}), op), node_.operands[2]});
  }

  /// At each place, the gradient is shared by the elements that are greatest (or least) among x and
  /// the terms.
  void scattered_extreme_gradient(const ScatterOp& op) {
    const NodeId x = node_.operands[0], terms = node_.operands[2];
    const DType wide = compute_type(type(x).dtype);
    const NodeId zero = scalar(wide, 0), one = scalar(wide, 1);
    const auto counted = [&](NodeId hit) { return map(ElementwiseOp::select, {hit, one, zero}); };
    const NodeId stays = map(ElementwiseOp::eq, {x, id_});
    const NodeId hits = map(ElementwiseOp::eq, {terms, gathered(id_, op)});
    const NodeId count = scattered(Monoid::Sum, counted(stays), counted(hits), op);
    const NodeId share = map(ElementwiseOp::div, {convert(g_, wide), count});
    const DType narrow = type(x).dtype;
    out_[0] = convert(map(ElementwiseOp::select, {stays, share, zero}), narrow);
    if (wants(2))
      out_[2] = convert(map(ElementwiseOp::select, {hits, gathered(share, op), zero}), narrow);
  }

  void visit(const ReduceOp& op) {
    const NodeId x = node_.operands[0];
    const TensorType x_type = type(x);
    switch (op.monoid) {
      case Monoid::Sum:
        out_[0] = spread(g_, x_type.shape, op.axes);
        break;
      case Monoid::Prod:
        out_[0] = product_gradient(x, x_type, op.axes);
        break;
      case Monoid::Max:
      case Monoid::Min:
        out_[0] = extreme_gradient(x, x_type, op.axes);
        break;
      case Monoid::And:
      case Monoid::Or:
        break;
    }
  }

  /// Each element gets the product of all others. It is made from products of pairs, of pairs of
  /// pairs and so on. There is no division, so it is right for zeros, and so are its own gradients.
  /// Symbolic extents are padded to the power of two that their range does not exceed.
  NodeId product_gradient(NodeId x, const TensorType& x_type, const Axes64& axes) {
    const DType wide = compute_type(x_type.dtype);
    const Axes64 kept = other_axes(x_type.shape.rank(), axes);
    Axes64 order = kept;
    order.insert(order.end(), axes.begin(), axes.end());
    std::vector<Expr> rows, moved;
    Expr count = 1;
    for (const int64_t axis : kept) rows.push_back(x_type.shape[at(axis)]);
    for (const int64_t axis : axes) count = count * x_type.shape[at(axis)];
    for (const int64_t axis : order) moved.push_back(x_type.shape[at(axis)]);

    const NodeId last = build::transpose(graph_, convert(x, wide), order, where());
    const NodeId line = build::reshape(graph_, last, with_last(rows, count), where());
    const NodeId others = products_of_others(line, rows, count);
    NodeId back = build::reshape(graph_, others, Shape(std::move(moved)), where());
    Axes64 inverse(order.size());
    for (size_t i = 0; i < order.size(); ++i) inverse[at(order[i])] = static_cast<int64_t>(i);
    back = build::transpose(graph_, back, inverse, where());
    const NodeId g = spread(convert(g_, wide), x_type.shape, axes);
    return convert(map(ElementwiseOp::mul, {g, back}), x_type.dtype);
  }

  static Shape with_last(std::vector<Expr> rows, const Expr& last) {
    rows.push_back(last);
    return Shape(std::move(rows));
  }

  /// The products along the last axis, which has `count` elements.
  NodeId products_of_others(NodeId line, const std::vector<Expr>& rows, const Expr& count) {
    const DType dtype = type(line).dtype;
    int64_t width = 1;
    while (width < count.range().max) width *= 2;
    const auto last_axis = [&](const Expr& last) {
      std::vector<Expr> all(rows.size(), Expr(0));
      all.push_back(last);
      return all;
    };
    const NodeId one = scalar(dtype, 1);
    std::vector<NodeId> levels = {build::pad(graph_, line, one, last_axis(0),
                                             last_axis(Expr(width) - count),
                                             Axes64(rows.size() + 1, 0), where())};
    const auto every_second = [&](NodeId level, int64_t first, int64_t size) {
      std::vector<Expr> limits = rows;
      limits.emplace_back(size);
      Axes64 strides(rows.size(), 1);
      strides.push_back(2);
      return build::slice(graph_, level, last_axis(first), std::move(limits), strides, where());
    };
    for (int64_t size = width; size > 1; size /= 2) {
      const NodeId level = levels.back();
      levels.push_back(
          map(ElementwiseOp::mul, {every_second(level, 0, size), every_second(level, 1, size)}));
    }
    NodeId others = build::broadcast_to(graph_, one, with_last(rows, 1), where());
    for (int64_t size = 2; size <= width; size *= 2) {
      levels.pop_back();
      const NodeId level = levels.back();
      // The product without an element is its neighbour times the product without the pair.
      std::vector<NodeId> halves;
      for (const int64_t neighbour : {1, 0}) {
        const NodeId half = map(ElementwiseOp::mul, {others, every_second(level, neighbour, size)});
        Shape column = with_last(rows, size / 2);
        halves.push_back(build::reshape(graph_, half, with_last(column.dims(), 1), where()));
      }
      const NodeId pairs =
          build::concat(graph_, halves, static_cast<int64_t>(rows.size()) + 1, where());
      others = build::reshape(graph_, pairs, with_last(rows, size), where());
    }
    std::vector<Expr> limits = rows;
    limits.push_back(count);
    return build::slice(graph_, others, last_axis(0), std::move(limits), Axes64(rows.size() + 1, 1),
                        where());
  }

  /// The gradient is divided equally among the elements that are the greatest (or least).
  NodeId extreme_gradient(NodeId x, const TensorType& x_type, const Axes64& axes) {
    const DType wide = compute_type(x_type.dtype);
    const NodeId zero = scalar(wide, 0), one = scalar(wide, 1);
    const NodeId hit = map(ElementwiseOp::eq, {x, spread(id_, x_type.shape, axes)});
    const NodeId hits = build::reduce(graph_, Monoid::Sum,
                                      map(ElementwiseOp::select, {hit, one, zero}), axes, where());
    const NodeId share = map(ElementwiseOp::div, {convert(g_, wide), hits});
    const NodeId spread_share = spread(share, x_type.shape, axes);
    return convert(map(ElementwiseOp::select, {hit, spread_share, zero}), x_type.dtype);
  }

  void visit(const ScanOp& op) {
    if (op.combiner.body()) return tuple_gradient(op);
    switch (*op.combiner.monoid()) {
      case Monoid::Sum:
        out_[0] = build::scan(graph_, ScanOp{Monoid::Sum, op.axis, !op.reverse, op.exclusive}, g_,
                              where());
        break;
      case Monoid::Prod:
        out_[0] = running_product_gradient(op);
        break;
      case Monoid::Max:
      case Monoid::Min:
        out_[0] = running_extreme_gradient(op);
        break;
      case Monoid::And:
      case Monoid::Or:
        break;
    }
  }

  /// At each index along the scan's axis: the element of x that comes `distance` steps later in the
  /// order of the scan, or `fill` after the end.
  NodeId later(NodeId x, const ScanOp& op, int64_t distance, double fill) {
    return later(x, op, distance, scalar(type(x).dtype, fill));
  }
  NodeId later(NodeId x, const ScanOp& op, int64_t distance, NodeId fill) {
    const TensorType x_type = type(x);
    const size_t rank = x_type.shape.rank();
    std::vector<Expr> low(rank, Expr(0)), high(rank, Expr(0)), starts(rank, Expr(0));
    (op.reverse ? low : high)[at(op.axis)] = distance;
    std::vector<Expr> limits = x_type.shape.dims();
    if (!op.reverse) {
      starts[at(op.axis)] = distance;
      limits[at(op.axis)] += distance;
    }
    const NodeId padded =
        build::pad(graph_, x, fill, std::move(low), std::move(high), Axes64(rank, 0), where());
    return build::slice(graph_, padded, std::move(starts), std::move(limits), Axes64(rank, 1),
                        where());
  }

  /// The gradient of the results of the inclusive scan. The last element of an exclusive scan
  /// contributes to no result.
  NodeId gradient_of_inclusive(const ScanOp& op) {
    const NodeId g = convert(g_, compute_type(node_.type.dtype));
    return op.exclusive ? later(g, op, 1, 0) : g;
  }

  /// In y[i], the factor of x[j] is the product of all elements before j, times the product of
  /// those between j and i. So the gradient of x[j] is the first product times a sum, and these
  /// sums are S[j] = g[j] + x[j+1] * S[j+1], a recurrence. There is no division, so they are right
  /// for zeros, and so are their own gradients.
  NodeId running_product_gradient(const ScanOp& op) {
    const NodeId x = convert(node_.operands[0], compute_type(node_.type.dtype));
    const ScanOp back{linear_recurrence(type(x).dtype), op.axis, !op.reverse, false, 1};
    const NodeId sum = build::scan(
        graph_, back, std::vector{later(x, op, 1, 1), gradient_of_inclusive(op)}, where());
    const NodeId before = build::scan(
        graph_, ScanOp{Monoid::Prod, op.axis, op.reverse, /*exclusive=*/true}, x, where());
    return convert(map(ElementwiseOp::mul, {before, sum}), node_.type.dtype);
  }

  /// The gradient of a scan of tuples. The tuples s[t] = F(s[t - 1], x[t]) are computed by the
  /// combiner F, so the gradients of s are l[t] = g[t] + J[t + 1]' l[t + 1], where J[t + 1] holds
  /// the derivatives of F by its left tuple at t + 1. These are a scan of matrices and vectors (J',
  /// g) in the other direction. Parts of l that are zero for all t, and entries of J that are zero,
  /// are left out, so the gradient of a first-order recurrence is one more such recurrence. Then
  /// x[t] gets the derivatives of F by its right tuple, times l[t].
  void tuple_gradient(const ScanOp& op) {
    const CombinerBody& body = *op.combiner.body();
    const size_t parts = body.dtypes.size();
    std::vector<NodeId> elements;
    for (size_t i = 0; i < parts; ++i)
      elements.push_back(convert(node_.operands[i], body.dtypes[i]));
    std::vector<NodeId> before;  // s[t - 1]
    for (size_t i = 0; i < parts; ++i) {
      ScanOp own = op;
      own.part = static_cast<int64_t>(i);
      const NodeId totals = build::scan(graph_, own, elements, where());
      ScanOp back = op;
      back.reverse = !op.reverse;
      const NodeId none = build::scalar_bits(graph_, body.dtypes[i], body.identity[i], where());
      before.push_back(op.exclusive ? totals : later(totals, back, 1, none));
    }
    const Derivatives derivatives(*this, body, before, elements);

    // The parts of l, and for each the parts of l that come later and contribute to it.
    std::vector<size_t> active = {static_cast<size_t>(op.part)};
    std::map<std::pair<size_t, size_t>, NodeId> entries;
    for (size_t n = 0; n < active.size(); ++n) {
      const size_t from = active[n];
      const NodeId one = scalar(body.dtypes[from], 1);
      const std::vector<NodeId> left = derivatives.of({{from, one}}, CombinerStep::Kind::Left);
      for (size_t to = 0; to < parts; ++to) {
        if (!left[to]) continue;
        entries[{to, from}] = later(spread_scalar(left[to]), op, 1, 0);
        if (std::find(active.begin(), active.end(), to) == active.end()) active.push_back(to);
      }
    }
    std::vector<NodeId> sums = scanned_gradients(op, body, active, entries);
    std::map<size_t, NodeId> seeds;
    for (size_t n = 0; n < active.size(); ++n) seeds[active[n]] = sums[n];
    const std::vector<NodeId> right = derivatives.of(seeds, CombinerStep::Kind::Right);
    for (size_t i = 0; i < parts; ++i)
      if (wants(i) && right[i]) out_[i] = convert(spread_scalar(right[i]), operand_type(i).dtype);
  }

  NodeId spread_scalar(NodeId x) {
    return build::broadcast_to(graph_, x, node_.type.shape, where());
  }

  /// The parts `active` of l[t] = M[t] l[t + 1] + g[t], where M has these entries (row, column).
  std::vector<NodeId> scanned_gradients(const ScanOp& op, const CombinerBody& of,
                                        const std::vector<size_t>& active,
                                        std::map<std::pair<size_t, size_t>, NodeId> entries) {
    const auto zeros_of = [&](size_t part) { return zeros({of.dtypes[part], node_.type.shape}); };
    // Products of such matrices have entries where paths of entries lead. The identity has those of
    // the diagonal.
    for (const size_t i : active)
      if (!entries.contains({i, i})) entries[{i, i}] = zeros_of(i);
    for (const size_t k : active)
      for (const size_t i : active)
        for (const size_t j : active)
          if (entries.contains({i, k}) && entries.contains({k, j}) && !entries.contains({i, j}))
            entries[{i, j}] = zeros_of(i);
    const size_t count = entries.size() + active.size();
    if (count > kMostCombinerParts)
      fail(codes::kNotDifferentiable,
           fmt::format(
               "grad: the gradient of this scan is a scan of tuples of {} values, and at most "
               "{} are possible",
               count, kMostCombinerParts),
           {.location = where(),
            .node = "scan",
            .fix = "scan fewer parts at once, or give the elements as stop_gradient(x)"});
    CombinerBody body;
    std::vector<NodeId> elements;
    std::map<std::pair<size_t, size_t>, uint32_t> matrix;  // numbers of parts
    std::map<size_t, uint32_t> vector;
    const auto add_part = [&](NodeId element, double identity) {
      const DType dtype = type(element).dtype;
      body.dtypes.push_back(dtype);
      body.identity.push_back(constant_bits(dtype, identity));
      elements.push_back(element);
      return static_cast<uint32_t>(elements.size() - 1);
    };
    for (const auto& [at, element] : entries)
      matrix[at] = add_part(element, at.first == at.second ? 1 : 0);
    for (const size_t i : active)
      vector[i] =
          add_part(i == static_cast<size_t>(op.part) ? gradient_of_inclusive(op) : zeros_of(i), 0);
    const auto value = [&](CombinerStep::Kind kind, uint32_t part) {
      return body.add({.kind = kind, .dtype = body.dtypes[part], .part = part});
    };
    // Sums of products of the right matrix (that of the earlier element) with the left tuple.
    const auto product = [&](size_t row, const auto& left, std::optional<uint32_t> sum) {
      for (const size_t k : active) {
        const auto factor = matrix.find({row, k});
        const std::optional<uint32_t> other = left(k);
        if (factor == matrix.end() || !other) continue;
        const uint32_t x = value(CombinerStep::Kind::Right, factor->second),
                       y = value(CombinerStep::Kind::Left, *other);
        sum = sum ? add_row(body, ElementwiseOp::fma, {x, y, *sum})
                  : add_row(body, ElementwiseOp::mul, {x, y});
      }
      return *sum;
    };
    for (const auto& [at, part] : matrix) {
      const size_t column = at.second;
      body.results.push_back(product(
          at.first,
          [&](size_t k) {
            const auto found = matrix.find({k, column});
            return found == matrix.end() ? std::nullopt : std::optional(found->second);
          },
          std::nullopt));
    }
    for (const size_t i : active)
      body.results.push_back(product(
          i, [&](size_t k) { return std::optional(vector.at(k)); },
          value(CombinerStep::Kind::Right, vector.at(i))));
    const Combiner combiner(std::move(body));
    std::vector<NodeId> out;
    for (const size_t i : active)
      out.push_back(build::scan(
          graph_, ScanOp{combiner, op.axis, !op.reverse, false, static_cast<int64_t>(vector.at(i))},
          elements, where()));
    return out;
  }

  /// Derivatives of the results of a combiner's body by its tuples, at given tuples.
  class Derivatives {
   public:
    Derivatives(Backward& outer, const CombinerBody& body, const std::vector<NodeId>& left,
                const std::vector<NodeId>& right)
        : outer_(outer), body_(body) {
      GraphEmitter emitter(outer.graph_, outer.where(), /*expand_formulas=*/true);
      for (const CombinerStep& step : body.steps) {
        std::vector<Scalar> arguments;
        switch (step.kind) {
          case CombinerStep::Kind::Left:
            values_.push_back(left[step.part]);
            break;
          case CombinerStep::Kind::Right:
            values_.push_back(right[step.part]);
            break;
          case CombinerStep::Kind::Constant:
            values_.push_back(GraphEmitter::node(emitter.constant(step.dtype, step.bits)));
            break;
          case CombinerStep::Kind::Apply:
            for (const uint32_t a : step.arguments) arguments.push_back(emitter.value(values_[a]));
            values_.push_back(GraphEmitter::node(emitter.apply(step.op, arguments, step.dtype)));
            break;
        }
      }
    }

    /// The gradients of the parts of one tuple, if those of some results are `seeds`. An empty id
    /// means zero.
    std::vector<NodeId> of(const std::map<size_t, NodeId>& seeds, CombinerStep::Kind tuple) const {
      GraphEmitter emitter(outer_.graph_, outer_.where(), /*expand_formulas=*/true);
      std::vector<NodeId> gradient(values_.size());
      const auto add = [&](uint32_t step, NodeId more) {
        NodeId& sum = gradient[step];
        sum = sum ? outer_.map(ElementwiseOp::add, {sum, more}) : more;
      };
      for (const auto& [part, seed] : seeds) add(body_.results[part], seed);
      std::vector<NodeId> out(body_.dtypes.size());
      for (size_t i = values_.size(); i-- > 0;) {
        const CombinerStep& step = body_.steps[i];
        if (!gradient[i] || !is_floating(step.dtype)) continue;
        if (step.kind == tuple) out[step.part] = gradient[i];
        if (step.kind != CombinerStep::Kind::Apply || !info(step.op).gradient) continue;
        std::array<Scalar, 3> x;
        for (size_t k = 0; k < step.arguments.size(); ++k)
          x[k] = emitter.value(values_[step.arguments[k]]);
        const Gradients parts = info(step.op).gradient(emitter.value(gradient[i]),
                                                       emitter.value(values_[i]), x[0], x[1], x[2]);
        for (size_t k = 0; k < step.arguments.size(); ++k)
          if (parts.of[k] && is_floating(body_.steps[step.arguments[k]].dtype))
            add(step.arguments[k], GraphEmitter::node(parts.of[k]));
      }
      return out;
    }

   private:
    Backward& outer_;
    const CombinerBody& body_;
    std::vector<NodeId> values_;
  };

  /// The gradient goes to the element that last set the running extreme. Of equal elements that is
  /// the latest. The same holds for NaNs, because a NaN stays the extreme.
  NodeId running_extreme_gradient(const ScanOp& op) {
    const NodeId x = node_.operands[0];
    const TensorType x_type = type(x);
    const Shape& shape = x_type.shape;
    ScanOp inclusive = op;
    inclusive.exclusive = false;
    const NodeId y = op.exclusive ? build::scan(graph_, inclusive, x, where()) : id_;
    const NodeId taken = map(ElementwiseOp::logical_or,
                             {map(ElementwiseOp::eq, {x, y}), map(ElementwiseOp::is_nan, {x})});
    // The index of that element along the axis. The first element always sets the extreme.
    const NodeId own = build::iota(graph_, {DType::I64, shape}, op.axis, where());
    const double none = op.reverse ? 0x1p62 : -1;
    const NodeId candidate = map(ElementwiseOp::select, {taken, own, scalar(DType::I64, none)});
    const Monoid latest = op.reverse ? Monoid::Min : Monoid::Max;
    const NodeId source =
        build::scan(graph_, ScanOp{latest, op.axis, op.reverse}, candidate, where());
    // Its row-major index among all elements.
    Expr inner = 1;
    for (size_t i = at(op.axis) + 1; i < shape.rank(); ++i) inner *= shape[i];
    const Shape line({shape.numel()});
    const NodeId position =
        build::reshape(graph_, build::iota(graph_, {DType::I64, line}, 0, where()), shape, where());
    const NodeId distance = map(ElementwiseOp::sub, {source, own});
    const NodeId target =
        map(ElementwiseOp::add,
            {position, map(ElementwiseOp::mul, {distance, build::size(graph_, inner, where())})});
    const NodeId g = gradient_of_inclusive(op);
    const NodeId sums = build::scatter_add(graph_, zeros({type(g).dtype, line}),
                                           build::reshape(graph_, target, line, where()),
                                           build::reshape(graph_, g, line, where()), 0, where());
    return convert(build::reshape(graph_, sums, shape, where()), x_type.dtype);
  }

  void visit(const DotOp& op) {
    // The gradient has the result's axes: batch, left free, right free. It is contracted with one
    // operand along the free axes of that operand. Then the product's axes are put into the order
    // of the other operand. If swapping the factors is enough for that, no transpose is needed.
    const size_t batch = op.batch_left.size();
    const Axes64 free_left =
        other_axes(operand_type(0).shape.rank(), op.batch_left, op.contract_left);
    const Axes64 free_right =
        other_axes(operand_type(1).shape.rank(), op.batch_right, op.contract_right);
    if (wants(0))
      out_[0] = dot_gradient(0, op.batch_left, free_left, op.contract_left, op.batch_right,
                             free_right, op.contract_right, batch + free_left.size(), op.tf32);
    if (wants(1))
      out_[1] = dot_gradient(1, op.batch_right, free_right, op.contract_right, op.batch_left,
                             free_left, op.contract_left, batch, op.tf32);
  }

  /// The gradient of operand `side`, whose axes are `batch`, `free` and `contract`. The other
  /// operand's axes are given in the same way. Its free axes begin at `other_at` in the gradient.
  NodeId dot_gradient(size_t side, const Axes64& batch, const Axes64& free, const Axes64& contract,
                      const Axes64& other_batch, const Axes64& other_free,
                      const Axes64& other_contract, size_t other_at, bool tf32) {
    const TensorType x = operand_type(side);
    DotOp back;
    back.tf32 = tf32;
    for (size_t i = 0; i < batch.size(); ++i) back.batch_left.push_back(static_cast<int64_t>(i));
    back.batch_right = other_batch;
    for (size_t i = 0; i < other_free.size(); ++i)
      back.contract_left.push_back(static_cast<int64_t>(other_at + i));
    back.contract_right = other_free;
    NodeId left = convert(g_, x.dtype), right = node_.operands[1 - side];
    // The product's axes are the batch, this side's free axes, and the other's contracted axes in
    // the other's order. If the factors are swapped, the last two groups are swapped too.
    Axes64 contracted;
    for (const int64_t axis : sorted(other_contract)) {
      const auto pair = std::find(other_contract.begin(), other_contract.end(), axis);
      contracted.push_back(contract[static_cast<size_t>(pair - other_contract.begin())]);
    }
    const Axes64 swapped = joined(batch, contracted, free);
    const bool swaps = std::is_sorted(swapped.begin(), swapped.end());
    if (swaps) {
      std::swap(left, right);
      std::swap(back.batch_left, back.batch_right);
      std::swap(back.contract_left, back.contract_right);
    }
    const NodeId product = build::dot(graph_, left, right, back, std::nullopt, where());
    const Axes64 holds = swaps ? swapped : joined(batch, free, contracted);
    if (std::is_sorted(holds.begin(), holds.end())) return product;
    Axes64 permutation(holds.size());
    for (size_t i = 0; i < holds.size(); ++i) permutation[at(holds[i])] = static_cast<int64_t>(i);
    return build::transpose(graph_, product, permutation, where());
  }

  static Axes64 joined(Axes64 first, const Axes64& second, const Axes64& third) {
    first.insert(first.end(), second.begin(), second.end());
    first.insert(first.end(), third.begin(), third.end());
    return first;
  }

  static Axes64 sorted(Axes64 axes) {
    std::sort(axes.begin(), axes.end());
    return axes;
  }

  Graph& graph_;
  NodeId id_;
  Node node_;
  NodeId g_;
  const std::vector<bool>* wanted_ = nullptr;
  std::vector<NodeId> out_;
};

/// A collective that does not combine by a sum, written as a reduction of what it gathers.
NodeId expand_collective(Graph& graph, const CollectiveOp& op, NodeId x, SourceLocation where) {
  std::vector<Expr> dims = graph[x].type.shape.dims();
  CollectiveOp moved{CollectiveKind::AllGather, op.axis};
  if (op.kind == CollectiveKind::ReduceScatter) {
    moved.kind = CollectiveKind::AllToAll;
    dims[0] = floordiv(dims[0], op.axis.size);
    dims.insert(dims.begin(), Expr(op.axis.size));
  } else {
    dims.insert(dims.begin(), Expr(1));
  }
  const NodeId rows = build::reshape(graph, x, Shape(std::move(dims)), where);
  return build::reduce(graph, op.monoid, build::collective(graph, moved, rows, where), {0}, where);
}

/// `loss`, with such a reduction for each collective that does not combine by a sum.
NodeId expand_collectives(Graph& graph, NodeId loss) {
  std::map<NodeId, NodeId> replacement;
  for (const NodeId id : ancestors(graph, {&loss, 1})) {
    const Node node = graph[id];
    std::vector<NodeId> operands;
    for (const NodeId operand : node.operands) operands.push_back(replacement.at(operand));
    const auto* collective = node.as<CollectiveOp>();
    if (collective && reduces(collective->kind) && collective->monoid != Monoid::Sum)
      replacement[id] = expand_collective(graph, *collective, operands[0], node.location);
    else
      replacement[id] = operands == node.operands ? id : build::rebuild(graph, node, operands);
  }
  return replacement.at(loss);
}

/// Gradients by node.
using NodeGradients = std::map<NodeId, NodeId>;

void add_gradient(Graph& graph, NodeGradients& gradients, NodeId node, NodeId more,
                  SourceLocation where) {
  NodeId& sum = gradients[node];
  sum = sum ? build::map(graph, ElementwiseOp::add, {sum, more}, where) : more;
}

bool recomputes(const Node& node) {
  const auto* barrier = node.as<BarrierOp>();
  return barrier && barrier->recompute;
}

/// One walk from results back to inputs. A region that is computed again for the gradients is
/// differentiated by a walk of its own.
class Walk {
 public:
  /// The walk ends at `inputs`. It makes gradients for those that are `wanted`.
  Walk(Graph& graph, NodeGradients results, std::span<const NodeId> inputs,
       const std::vector<bool>& wanted, const CustomBackward& custom)
      : graph_(graph),
        custom_(custom),
        varying_(graph),
        gradients_(std::move(results)),
        carries_(graph.size()) {
    std::vector<NodeId> ends;
    for (const auto& [result, gradient] : gradients_) ends.push_back(result);
    order_ = ancestors(graph_, ends, inputs);
    std::vector<bool> is_input(graph_.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      is_input[inputs[i].index] = true;
      carries_[inputs[i].index] = wanted[i];
    }
    std::erase_if(order_, [&](NodeId id) { return is_input[id.index]; });
    // The gradient flows through these nodes: floating values that depend on a wanted input.
    for (const NodeId id : order_) {
      const Node& node = graph_[id];
      for (const NodeId operand : node.operands)
        if (carries_[operand.index] && is_arithmetic_float(node.type.dtype))
          carries_[id.index] = true;
      if (recomputes(node)) regions_[boundary(node)].push_back(id);
    }
  }

  NodeGradients run() {
    for (auto id = order_.rbegin(); id != order_.rend(); ++id) {
      if (!carries_[id->index]) continue;
      if (recomputes(graph_[*id]))
        visit_region(*id);
      else
        visit(*id);
    }
    while (!partial_.empty()) settle(partial_.begin()->first);
    return std::move(gradients_);
  }

 private:
  using Boundary = std::vector<NodeId>;

  static Boundary boundary(const Node& barrier) {
    return {barrier.operands.begin() + 1, barrier.operands.end()};
  }

  // A value may be the same on several devices while other operands of an op differ. Then each
  // device computes only its own part of the value's gradient. When the parts are complete, they
  // are summed up over the devices.

  /// Adds `more` to the gradient of `node`. It is a part for each of the devices along `axes`.
  void add(NodeId node, NodeId more, const AxisSet& axes, SourceLocation where) {
    if (axes.empty()) return add_gradient(graph_, gradients_, node, more, where);
    for (auto& [known, sum] : partial_[node]) {
      if (known != axes) continue;
      sum = build::map(graph_, ElementwiseOp::add, {sum, more}, where);
      return;
    }
    partial_[node].emplace_back(axes, more);
  }

  NodeId summed(NodeId part, const AxisSet& axes, SourceLocation where) {
    for (const MeshAxis& axis : axes)
      part = build::collective(graph_, {CollectiveKind::AllReduce, axis}, part, where);
    return part;
  }

  void settle(NodeId node) {
    const auto parts = partial_.extract(node);
    if (parts.empty()) return;
    const SourceLocation where = graph_[node].location;
    for (const auto& [axes, part] : parts.mapped())
      add_gradient(graph_, gradients_, node, summed(part, axes, where), where);
  }

  /// Handles the gradient of a value that was gathered along a mesh axis. Each device needs only
  /// its own block of the sum over that axis, so a reduce_scatter is enough.
  void scatter(NodeId id) {
    const Node node = graph_[id];
    const auto* op = node.as<CollectiveOp>();
    const auto parts = partial_.find(id);
    if (!op || op->kind != CollectiveKind::AllGather || parts == partial_.end()) return;
    const AxisSet of_operand = united(varying_.of(node.operands[0]), {op->axis});
    std::erase_if(parts->second, [&](const auto& entry) {
      const auto& [axes, part] = entry;
      if (!contains(axes, op->axis.name)) return false;
      const NodeId block =
          build::collective(graph_, {CollectiveKind::ReduceScatter, op->axis}, part, node.location);
      add(node.operands[0], summed(block, without(axes, {op->axis}), node.location),
          without(of_operand, varying_.of(node.operands[0])), node.location);
      return true;
    });
    if (parts->second.empty()) partial_.erase(id);
  }

  /// A gradient is linear in the gradient that it comes from. So the parts can be handed on to the
  /// operand, and be summed up over the devices there, if it has no more elements. For example, the
  /// gradient of a bias is first summed over the rows that it was added to, and then over the
  /// devices.
  void hand_on(NodeId id) {
    const Node node = graph_[id];
    if (!partial_.contains(id) || node.as<CollectiveOp>() || node.as<CustomCallOp>()) return;
    if (const MapOp* map = node.as<MapOp>(); map && info(map->op).through_body) return;
    std::vector<bool> wanted;
    for (const NodeId operand : node.operands) wanted.push_back(carries_[operand.index]);
    if (std::ranges::count(wanted, true) != 1) return;
    const auto i = static_cast<size_t>(std::ranges::find(wanted, true) - wanted.begin());
    // The operand must vary along all axes along which the node does. Else its own users would have
    // to sum up more.
    if (!without(varying_.of(id), varying_.of(node.operands[i])).empty()) return;
    const TensorType& type = graph_[node.operands[i]].type;
    if (type.dtype != node.type.dtype ||
        !proves_at_most(type.shape.numel(), node.type.shape.numel()))
      return;
    const auto parts = partial_.extract(id);
    for (const auto& [axes, part] : parts.mapped())
      if (const NodeId on = Backward(graph_, id, part).operands(wanted)[i])
        add(node.operands[i], on, axes, node.location);
  }

  void visit(NodeId id) {
    scatter(id);
    hand_on(id);
    settle(id);
    const auto gradient = gradients_.find(id);
    if (gradient == gradients_.end()) return;
    AxisSet here = varying_.of(id);
    if (const auto* op = graph_[id].as<CollectiveOp>())
      here = united(varying_.of(graph_[id].operands[0]), {op->axis});
    const std::vector<NodeId> operands = graph_[id].operands;
    const SourceLocation where = graph_[id].location;
    std::vector<bool> wanted;
    for (const NodeId operand : operands) wanted.push_back(carries_[operand.index]);
    if (std::find(wanted.begin(), wanted.end(), true) == wanted.end()) return;
    if (const MapOp* map = graph_[id].as<MapOp>(); map && info(map->op).through_body)
      return visit_body(map->op, operands, wanted, gradient->second, where);
    const std::vector<NodeId> parts = graph_[id].as<CustomCallOp>()
                                          ? custom_parts(id, gradient->second)
                                          : Backward(graph_, id, gradient->second).operands(wanted);
    for (size_t i = 0; i < operands.size(); ++i)
      if (parts[i] && wanted[i])
        add(operands[i], parts[i], without(here, varying_.of(operands[i])), where);
  }

  std::vector<NodeId> custom_parts(NodeId id, NodeId gradient) const {
    if (!custom_) fail_no_gradient(graph_[id]);
    return custom_(id, gradient);
  }

  /// Differentiates a formula through its body. Only the gradient needs the body. The formula's
  /// users still read the formula itself, so nothing is computed twice if the graph already has its
  /// value.
  void visit_body(ElementwiseOp op, const std::vector<NodeId>& operands,
                  const std::vector<bool>& wanted, NodeId gradient, SourceLocation where) {
    const NodeId body = expand_formula(graph_, op, operands, where);
    for (const auto& [operand, part] :
         Walk(graph_, {{body, gradient}}, operands, wanted, custom_).run())
      for (size_t i = 0; i < operands.size(); ++i)
        if (operands[i] == operand && wanted[i]) {
          add_gradient(graph_, gradients_, operand, part, where);
          break;
        }
  }

  /// The walk meets the results of a region one by one. At the last one, the gradients of all of
  /// them exist. Only then is the region computed again, and differentiated as a whole.
  void visit_region(NodeId id) {
    const SourceLocation where = graph_[id].location;
    const Boundary inputs = boundary(graph_[id]);
    const std::vector<NodeId>& results = regions_.at(inputs);
    if (id != results.front()) return;
    std::vector<NodeId> values, given;
    for (const NodeId result : results) {
      settle(result);
      const auto gradient = gradients_.find(result);
      if (gradient == gradients_.end()) continue;
      values.push_back(graph_[result].operands[0]);
      given.push_back(gradient->second);
    }
    if (values.empty()) return;
    for (const NodeId inside : ancestors(graph_, values, inputs))
      if (const Node& node = graph_[inside]; has_side_effects(node))
        fail(codes::kNotDifferentiable,
             "grad: this call has side effects, and a checkpoint would make it again",
             {.location = node.location,
              .node = node.as<CustomCallOp>()->target,
              .fix = "make the call outside of the function that is given to checkpoint"});
    std::vector<NodeId> later;
    std::vector<bool> wanted;
    for (const NodeId input : inputs) {
      later.push_back(build::barrier(graph_, input, given, {}, where));
      wanted.push_back(carries_[input.index]);
    }
    const std::vector<NodeId> again = replace(graph_, values, inputs, later);
    NodeGradients ends;
    for (size_t i = 0; i < again.size(); ++i) add_gradient(graph_, ends, again[i], given[i], where);
    const NodeGradients parts = Walk(graph_, std::move(ends), later, wanted, custom_).run();
    for (size_t i = 0; i < inputs.size(); ++i)
      if (const auto part = parts.find(later[i]); wanted[i] && part != parts.end())
        add_gradient(graph_, gradients_, inputs[i], part->second, where);
  }

  Graph& graph_;
  const CustomBackward& custom_;
  VaryingAxes varying_;
  NodeGradients gradients_;
  /// Parts of gradients. Summed up over their axes they become gradients.
  std::map<NodeId, std::vector<std::pair<AxisSet, NodeId>>> partial_;
  std::vector<NodeId> order_;
  std::vector<bool> carries_;
  std::map<Boundary, std::vector<NodeId>> regions_;  // the results of each region, in order
};

}  // namespace

void fail_no_gradient(const Node& call) {
  const std::string& target = call.as<CustomCallOp>()->target;
  fail(codes::kNotDifferentiable,
       fmt::format("grad: no gradient is known of custom_call({})", quote(target)),
       {.location = call.location,
        .node = target,
        .fix = "give custom_call the option `gradient`, or its operands as stop_gradient(x)"});
}

std::vector<NodeId> differentiate(Graph& graph, NodeId loss, std::span<const NodeId> inputs,
                                  const CustomBackward& custom) {
  loss = expand_collectives(graph, loss);
  const NodeId one = build::scalar(graph, graph[loss].type.dtype, 1, graph[loss].location);
  const NodeGradients gradients =
      Walk(graph, {{loss, one}}, inputs, std::vector<bool>(inputs.size(), true), custom).run();
  std::vector<NodeId> out;
  for (const NodeId input : inputs) {
    const auto gradient = gradients.find(input);
    if (gradient != gradients.end()) {
      out.push_back(gradient->second);
      continue;
    }
    const TensorType type = graph[input].type;
    const NodeId zero = build::scalar(graph, type.dtype, 0, graph[input].location);
    out.push_back(build::broadcast_to(graph, zero, type.shape, graph[input].location));
  }
  return out;
}

std::vector<NodeId> replace(Graph& graph, std::span<const NodeId> values,
                            std::span<const NodeId> from, std::span<const NodeId> to) {
  std::map<NodeId, NodeId> replacement;
  for (size_t i = 0; i < from.size(); ++i) replacement[from[i]] = to[i];
  for (const NodeId id : ancestors(graph, values, from)) {
    if (replacement.contains(id)) continue;
    const Node node = graph[id];
    std::vector<NodeId> operands;
    for (const NodeId operand : node.operands) operands.push_back(replacement.at(operand));
    replacement[id] = operands == node.operands ? id : build::rebuild(graph, node, operands);
  }
  std::vector<NodeId> out;
  for (const NodeId value : values) out.push_back(replacement.at(value));
  return out;
}

}  // namespace braze
