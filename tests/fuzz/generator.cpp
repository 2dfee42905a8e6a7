#include "tests/fuzz/generator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "frontend/autodiff/gradient.h"
#include "frontend/builder/builder.h"
#include "ir/graph/build.h"
#include "ir/graph/check.h"
#include "ir/graph/sizes.h"
#include "tests/fuzz/random.h"

namespace braze::fuzz {
namespace {

using Axes = std::vector<int64_t>;

/// One graph in the making. Every add_* adds one op on values that exist, or on new leaves, and
/// gives up silently where the values at hand do not allow it.
class Generator {
 public:
  Generator(uint64_t seed, const GraphOptions& options)
      : random_(seed),
        options_(options),
        gathers_windows_(Random(~seed).one_in(4)),
        sorts_(options.sorts && Random(seed ^ 0x736f7274).one_in(5)),
        may_be_empty_(Random(seed ^ 0x656d707479).one_in(3)),
        has_siblings_(options.siblings && Random(seed ^ 0x7369626c696e6773).one_in(12)) {
    if (options.symbolic && random_.one_in(4)) {
      const int64_t divisor = random_.pick({1, 1, 4, 8});
      const int64_t least = may_be_empty_ ? 0 : divisor;
      symbol_ = Expr::symbol("n", {least, random_.pick({1, 4, 9}) * 8}, divisor);
    }
  }

  Graph run() {
    // Small graphs more often than large ones.
    const int64_t limit = random_.within(1, options_.max_nodes);
    const int64_t count = random_.within(1, limit);
    add_input(random_type(kAnyType));
    if (symbol_) add_input({random_dtype(kAnyType), {*symbol_}});  // which determines it
    for (int64_t i = 0; i < count; ++i) add_op();
    if (options_.gradients && options_.reductions && random_.one_in(8)) add_gradients();
    if (random_.one_in(4)) add_updates();
    if (has_siblings_) add_siblings();
    choose_outputs();
    return std::move(graph_);
  }

 private:
  // Types and leaves.

  int64_t random_extent() {
    switch (random_.below(10)) {
      case 0:
        return random_.one_in(3) ? 0 : 1;
      case 1:
        return 1;
      case 2:
        return random_.pick({15, 16, 17, 31, 32, 33});
      case 3:
        return random_.pick({63, 64, 65, 127, 128, 129});
      case 4:
        return random_.pick({11, 13, 23, 37, 53, 97});
      default:
        return random_.within(2, 9);
    }
  }

  DType random_dtype(TypeSet types) {
    for (;;) {
      const DType dtype = random_.one_in(4) ? DType::F32 : random_.pick(kAllDTypes);
      if (types.contains(dtype)) return dtype;
    }
  }

  TensorType random_type(TypeSet types) {
    const int64_t rank = random_.one_in(16) ? random_.within(5, 6) : random_.below(5);
    std::vector<Expr> dims;
    int64_t elements = 1;
    for (int64_t i = 0; i < rank; ++i) {
      Expr extent = i == 0 && symbol_ && random_.one_in(2) ? *symbol_ : Expr(random_extent());
      if (elements * most(extent) > options_.max_elements) extent = 1;
      elements *= std::max<int64_t>(most(extent), 1);
      dims.push_back(extent);
    }
    return {random_dtype(types), Shape(std::move(dims))};
  }

  static int64_t most(const Expr& extent) { return extent.range().max; }
  static int64_t least(const Expr& extent) { return extent.range().min; }

  bool fits(const Shape& shape) const {
    int64_t elements = 1;
    for (const Expr& extent : shape)
      if (__builtin_mul_overflow(elements, std::max<int64_t>(most(extent), 1), &elements))
        return false;
    return elements <= options_.max_elements;
  }

  NodeId keep(NodeId id) {
    if (std::find(values_.begin(), values_.end(), id) == values_.end()) values_.push_back(id);
    return id;
  }

  NodeId add_input(TensorType type) {
    return keep(
        build::input(graph_, "x" + std::to_string(graph_.inputs().size()), std::move(type)));
  }

  NodeId add_constant(DType dtype, const Shape& shape) {
    HostTensor value(dtype, shape.static_dims());
    for (int64_t i = 0; i < value.numel(); ++i)
      is_floating(dtype) ? value.set_double(i, random_.normal())
                         : value.set_int(i, random_.within(-5, 5));
    return keep(build::constant(graph_, std::move(value)));
  }

  NodeId add_leaf(TensorType type) {
    const Shape& shape = type.shape;
    switch (random_.below(8)) {
      case 0:
        if (shape.is_static()) return add_constant(type.dtype, shape);
        break;
      case 1: {
        const double value = random_.pick({0.0, 1.0, -1.0, 0.5, 2.0, 3.0, -0.0, 1e-3});
        return keep(build::broadcast_to(graph_, build::scalar(graph_, type.dtype, value), shape));
      }
      case 2:
        if (shape.rank() > 0 && kNumeric.contains(type.dtype))
          return keep(build::iota(graph_, type, random_.below(static_cast<int64_t>(shape.rank()))));
        break;
      case 3:
        if (!shape.is_static() && type.dtype != DType::Bool) {
          const NodeId size = build::size(graph_, shape.numel());
          return keep(build::broadcast_to(graph_, build::convert(graph_, size, type.dtype), shape));
        }
        break;
      default:
        break;
    }
    return add_input(type);
  }

  // Values.

  const TensorType& type(NodeId id) const { return graph_[id].type; }
  const Shape& shape(NodeId id) const { return type(id).shape; }
  int64_t rank(NodeId id) const { return static_cast<int64_t>(shape(id).rank()); }

  /// A value whose dtype is in `types`, recent ones more often.
  NodeId any(TypeSet types, int64_t min_rank = 0) {
    for (int attempt = 0; attempt < 12; ++attempt) {
      const auto count = static_cast<int64_t>(values_.size());
      const int64_t age =
          random_.one_in(2) ? random_.below(std::min<int64_t>(count, 4)) : random_.below(count);
      const NodeId id = values_[static_cast<size_t>(count - 1 - age)];
      if (types.contains(type(id).dtype) && rank(id) >= min_rank) return id;
    }
    TensorType leaf = random_type(types);
    while (static_cast<int64_t>(leaf.shape.rank()) < min_rank) leaf = random_type(types);
    return add_leaf(leaf);
  }

  /// A value of just this type: one that exists, a converted or broadcast one, or a leaf.
  NodeId of_type(TensorType wanted) {
    std::vector<NodeId> same, convertible, broadcastable;
    for (NodeId id : values_) {
      if (type(id) == wanted)
        same.push_back(id);
      else if (shape(id) == wanted.shape)
        convertible.push_back(id);
      else if (type(id).dtype == wanted.dtype && is_suffix(shape(id), wanted.shape))
        broadcastable.push_back(id);
    }
    if (!same.empty() && !random_.one_in(8)) return random_.pick(same);
    if (!broadcastable.empty() && random_.one_in(2))
      return keep(build::broadcast_to(graph_, random_.pick(broadcastable), wanted.shape));
    if (!convertible.empty() && random_.one_in(2))
      return keep(build::convert(graph_, random_.pick(convertible), wanted.dtype));
    return add_leaf(wanted);
  }

  /// Whether NumPy's rule broadcasts `from` to `to`.
  static bool is_suffix(const Shape& from, const Shape& to) {
    if (from.rank() > to.rank()) return false;
    for (size_t i = 0; i < from.rank(); ++i) {
      const Expr& extent = from[from.rank() - 1 - i];
      if (!(extent == to[to.rank() - 1 - i] || extent.is_constant(1))) return false;
    }
    return true;
  }

  Axes random_axes(NodeId x, int64_t one_in) {
    Axes axes;
    for (int64_t axis = 0; axis < rank(x); ++axis)
      if (random_.one_in(one_in)) axes.push_back(axis);
    return axes;
  }

  // Ops.

  void add_op() {
    switch (random_.below(24)) {
      case 0:
        return add_broadcast();
      case 1:
        return add_reshape();
      case 2:
        return add_transpose();
      case 3:
        return add_slice();
      case 4:
        return options_.reductions && random_.one_in(4) ? add_padded_rows() : add_pad();
      case 5:
        return add_concat();
      case 6:
        return random_.one_in(2) ? add_reverse() : add_window();
      case 7:
        return add_gather();
      case 8:
        return options_.reductions ? add_scatter() : add_map();
      case 9:
      case 10:
      case 11:
        if (!options_.reductions) return add_map();
        return options_.rows_and_columns && random_.one_in(2) ? add_rows_and_columns()
                                                              : add_reduce();
      case 12:
        if (!options_.reductions) return add_map();
        return sorts_ ? add_arg_sort() : add_arg_reduce();
      case 13:
      case 14:
        return options_.reductions ? add_dot() : add_map();
      case 22:
      case 23:
        return options_.reductions ? add_scan() : add_map();
      case 15:
        return add_conversion();
      case 16:
        if (random_.one_in(4)) return add_random_bits();
        return add_map();
      default:
        return add_map();
    }
  }

  void add_map() {
    const ElementwiseInfo& row = random_.pick(elementwise_table());
    const auto op = *parse_elementwise(row.name);
    if (row.result == ResultRule::Chosen || row.inner) return add_conversion();
    if (!options_.math && row.op_class != OpClass::Machine) return;
    const NodeId x = any(row.types);
    std::vector<NodeId> operands;
    if (op == ElementwiseOp::select) operands.push_back(of_type({DType::Bool, shape(x)}));
    operands.push_back(x);
    while (operands.size() < row.arity) {
      const bool scalar = random_.one_in(6);
      operands.push_back(of_type({type(x).dtype, scalar ? Shape() : shape(x)}));
    }
    if (op != ElementwiseOp::select && operands.size() == 2 && random_.one_in(2))
      std::swap(operands[0], operands[1]);
    keep(build::map(graph_, op, std::move(operands)));
  }

  void add_conversion() {
    const NodeId x = any(kAnyType);
    const DType from = type(x).dtype;
    // The bits of floats that implementations may round differently are nobody's promise.
    if (random_.one_in(3) && (!is_floating(from) || is_exact(graph_, x))) {
      TypeSet same_size;
      for (DType to : kAllDTypes)
        if (size_of(to) == size_of(from) && to != DType::Bool && from != DType::Bool)
          same_size = same_size | only(to);
      if (same_size == TypeSet{}) return;
      keep(build::bitcast(graph_, x, random_dtype(same_size)));
    } else {
      keep(build::convert(graph_, x, random_dtype(kAnyType)));
    }
  }

  void add_broadcast() {
    const NodeId x = any(kAnyType);
    std::vector<Expr> dims;
    Axes axes;
    for (int64_t axis = 0; axis <= rank(x); ++axis) {
      if (random_.one_in(4)) dims.push_back(random_extent());
      if (axis == rank(x)) break;
      const Expr& extent = shape(x)[static_cast<size_t>(axis)];
      axes.push_back(static_cast<int64_t>(dims.size()));
      dims.push_back(extent.is_constant(1) && random_.one_in(2) ? Expr(random_extent()) : extent);
    }
    if (fits(Shape(dims))) keep(build::broadcast(graph_, x, Shape(dims), axes));
  }

  void add_reshape() {
    const NodeId x = any(kAnyType);
    std::vector<Expr> dims;
    for (const Expr& extent : shape(x)) {
      const auto constant = extent.as_constant();
      if (!dims.empty() && random_.one_in(3)) {
        dims.back() *= extent;  // merge
      } else if (constant && *constant > 1 && random_.one_in(2)) {
        const int64_t factor = smallest_factor(*constant);
        dims.push_back(factor);  // split
        dims.push_back(*constant / factor);
      } else {
        dims.push_back(extent);
      }
      if (random_.one_in(6)) dims.push_back(1);
    }
    if (dims.empty()) dims.assign(static_cast<size_t>(random_.below(3)), 1);
    keep(build::reshape(graph_, x, Shape(std::move(dims))));
  }

  static int64_t smallest_factor(int64_t n) {
    for (int64_t factor = 2; factor * factor <= n; ++factor)
      if (n % factor == 0) return factor;
    return n;
  }

  void add_transpose() {
    const NodeId x = any(kAnyType, 1);
    Axes permutation(static_cast<size_t>(rank(x)));
    std::iota(permutation.begin(), permutation.end(), 0);
    random_.shuffle(permutation);
    keep(build::transpose(graph_, x, std::move(permutation)));
  }

  void add_slice() {
    const NodeId x = any(kAnyType, 1);
    std::vector<Expr> starts, limits;
    Axes strides;
    for (const Expr& extent : shape(x)) {
      const int64_t sure = least(extent);
      const int64_t start = random_.one_in(2) ? 0 : random_.within(0, sure);
      // Counted from the end, so that it also holds for a symbolic extent.
      const int64_t cut = random_.one_in(2) ? 0 : random_.within(0, sure - start);
      starts.push_back(start);
      limits.push_back(extent - cut);
      strides.push_back(random_.one_in(3) ? random_.within(1, 4) : 1);
    }
    keep(build::slice(graph_, x, std::move(starts), std::move(limits), std::move(strides)));
  }

  void add_pad() {
    const NodeId x = any(kAnyType, 1);
    const std::optional<PadOp> op = random_pad(shape(x));
    if (!op) return;
    // At times again with another filler, which kernels must not take for the first.
    for (int64_t times = random_.one_in(3) ? 2 : 1; times > 0; --times) keep(padded(x, *op));
  }

  /// None if the result would be too large.
  std::optional<PadOp> random_pad(const Shape& shape) {
    PadOp op;
    std::vector<Expr> dims;
    for (const Expr& extent : shape) {
      op.low.push_back(random_.one_in(2) ? random_.below(4) : 0);
      op.high.push_back(random_.one_in(2) ? random_.below(4) : 0);
      op.interior.push_back(random_.one_in(4) ? random_.below(3) : 0);
      dims.push_back(extent * (op.interior.back() + 1) + op.low.back() + op.high.back());
    }
    return fits(Shape(dims)) ? std::optional(op) : std::nullopt;
  }

  NodeId padded(NodeId x, const PadOp& op) {
    const NodeId fill = of_type({type(x).dtype, {}});
    return build::pad(graph_, x, fill, op.low, op.high, op.interior);
  }

  /// Passes over rows that pad one value differently: a reduction of one, and the other with its
  /// result.
  void add_padded_rows() {
    const NodeId x = any(kFloating, 1);
    const std::optional<PadOp> op = random_pad(shape(x));
    if (!op) return;
    const auto row = options_.math ? random_.pick({ElementwiseOp::tanh, ElementwiseOp::exp})
                                   : ElementwiseOp::sqrt;
    const NodeId value = build::map(graph_, row, {x});
    const NodeId first = padded(value, *op), second = padded(value, *op);
    const Monoid monoid = random_.pick({Monoid::Sum, Monoid::Max, Monoid::Min});
    const NodeId total = build::reduce(graph_, monoid, first, {rank(first) - 1});
    Axes axes(static_cast<size_t>(rank(total)));
    std::iota(axes.begin(), axes.end(), 0);
    const NodeId rows = build::broadcast(graph_, total, shape(first), axes);
    keep(build::map(graph_, ElementwiseOp::add, {second, rows}));
  }

  /// Windows over new axes, as of a convolution, or along an axis that the value has, as its
  /// gradient has them; then at times summed, or multiplied and summed.
  void add_window() {
    NodeId x = any(kAnyType, 1);
    const bool fresh = rank(x) < 2 || random_.one_in(2);
    const int64_t tap = fresh ? rank(x) : random_.below(rank(x));
    if (fresh) {
      std::vector<Expr> dims = shape(x).dims();
      Axes axes(dims.size());
      std::iota(axes.begin(), axes.end(), 0);
      dims.emplace_back(random_.within(0, 4));
      if (!fits(Shape(dims))) return;
      x = keep(build::broadcast(graph_, x, Shape(std::move(dims)), std::move(axes)));
    }
    WindowsOp op;
    std::vector<Expr> dims = shape(x).dims();
    for (int64_t axis = 0; axis < rank(x); ++axis) {
      if (axis == tap || !random_.one_in(2)) continue;
      op.axes.push_back(axis);
      op.taps.push_back(tap);
      op.strides.push_back(random_.one_in(3) ? random_.within(1, 4) : 1);
      op.gaps.push_back(random_.one_in(4) ? random_.within(1, 3) : 1);
      op.dilations.push_back(random_.one_in(3) ? random_.within(-3, 3) : 1);
      op.low.emplace_back(random_.one_in(2) ? random_.within(-3, 3) : 0);
      if (random_.one_in(2)) dims[static_cast<size_t>(axis)] = random_.within(0, 7);
    }
    if (!fits(Shape(dims))) return;
    const NodeId fill = of_type({type(x).dtype, {}});
    x = keep(build::windows(graph_, x, fill, std::move(op), Shape(std::move(dims))));
    if (!options_.reductions || !kFloating.contains(type(x).dtype) || !random_.one_in(2)) return;
    if (random_.one_in(2)) {
      keep(build::reduce(graph_, random_.pick({Monoid::Sum, Monoid::Max}), x, {tap}));
      return;
    }
    const Expr& taps = shape(x)[static_cast<size_t>(tap)];
    const NodeId factor = of_type({type(x).dtype, Shape{taps, Expr(random_.within(1, 5))}});
    Shape result = shape(x);
    result[static_cast<size_t>(tap)] = shape(factor)[1];
    if (fits(result)) keep(build::dot(graph_, x, factor, {{}, {}, {tap}, {0}}));
  }

  void add_concat() {
    const NodeId x = any(kAnyType, 1);
    const int64_t axis = random_.below(rank(x));
    std::vector<NodeId> parts{x};
    for (int64_t i = random_.within(1, 3); i > 0; --i) {
      TensorType part = type(x);
      if (random_.one_in(2)) part.shape[static_cast<size_t>(axis)] = random_.below(6);
      parts.push_back(of_type(part));
    }
    random_.shuffle(parts);
    Shape result = shape(x);
    result[static_cast<size_t>(axis)] = 0;
    for (NodeId part : parts)
      result[static_cast<size_t>(axis)] += shape(part)[static_cast<size_t>(axis)];
    if (fits(result)) keep(build::concat(graph_, std::move(parts), axis));
  }

  void add_reverse() {
    const NodeId x = any(kAnyType, 1);
    keep(build::reverse(graph_, x, random_axes(x, 2)));
  }

  /// Indices that are within `extent` whatever the inputs are.
  NodeId indices_within(const Expr& extent) {
    TensorType wanted = random_type(only(DType::I32) | only(DType::I64));
    const NodeId x =
        random_.one_in(2) ? any(only(DType::I32) | only(DType::I64)) : add_leaf(wanted);
    const DType dtype = type(x).dtype;
    const NodeId zero = build::scalar(graph_, dtype, 0);
    const NodeId last = build::scalar(graph_, dtype, static_cast<double>(least(extent) - 1));
    return keep(build::map(graph_, ElementwiseOp::clamp, {x, zero, last}));
  }

  static Shape gathered_shape(const Shape& x, const Shape& indices, int64_t axis) {
    std::vector<Expr> dims(x.begin(), x.begin() + axis);
    dims.insert(dims.end(), indices.begin(), indices.end());
    dims.insert(dims.end(), x.begin() + axis + 1, x.end());
    return Shape(std::move(dims));
  }

  /// Windows of a value, and the indices that point at them.
  struct GatherCase {
    GatherAxes axes;
    Dims sizes;
    Outside outside = Outside::Clamp;
    Shape shape;  // of the tensor of all windows
    Tensor indices;
  };

  static bool has(const Axes& list, int64_t axis) {
    return std::find(list.begin(), list.end(), axis) != list.end();
  }

  /// None if a window may have no place, or if there would be too many elements.
  std::optional<GatherCase> random_windows(Shape x) {  // by value: leaves are added
    GatherCase c;
    c.outside = random_.pick({Outside::Clamp, Outside::Drop, Outside::Never});
    std::vector<Expr> sizes, batch;  // of a window; of the other axes of the indices
    for (size_t i = 0; i < x.rank(); ++i) {
      const Expr& extent = x[i];
      const auto axis = static_cast<int64_t>(i);
      if (least(extent) < 1 && !extent.is_constant(0)) return std::nullopt;
      sizes.push_back(random_.one_in(2) ? extent : Expr(random_.within(0, least(extent))));
      switch (random_.below(4)) {
        case 0:
          c.axes.batch.push_back(axis);
          batch.push_back(random_.one_in(3) ? Expr(random_.within(0, least(extent))) : extent);
          sizes.back() = 1;
          break;
        case 1:
          if (least(extent) < 1) break;
          c.axes.collapsed.push_back(axis);
          sizes.back() = 1;
          if (!random_.one_in(4)) c.axes.indexed.push_back(axis);
          break;
        case 2:
          c.axes.indexed.push_back(axis);
          break;
        default:
          break;
      }
    }
    random_.shuffle(c.axes.indexed);
    for (const Expr& size : sizes) c.sizes.push_back(to_dim(size));
    // The axes of the indices in any order: the partners of batch axes, and others.
    for (int64_t i = random_.below(3); i > 0; --i) batch.push_back(random_.pick({1, 1, 2, 3, 0}));
    std::vector<size_t> order(batch.size());
    std::iota(order.begin(), order.end(), size_t{0});
    random_.shuffle(order);
    std::vector<Expr> dims;
    for (const size_t i : order) dims.push_back(batch[i]);
    const auto rank = static_cast<int64_t>(dims.size());
    const auto count = static_cast<int64_t>(c.axes.indexed.size());
    const bool is_bare = count == 1 && random_.one_in(2);  // vectors of one element have no axis
    c.axes.vector = is_bare ? rank : random_.below(rank + 1);
    if (!is_bare) dims.insert(dims.begin() + c.axes.vector, count);
    for (size_t i = 0; i < c.axes.batch.size(); ++i) {
      const int64_t along = std::find(order.begin(), order.end(), i) - order.begin();
      c.axes.index_batch.push_back(along + (along >= c.axes.vector ? 1 : 0));
    }
    // The axes of the windows, between those of the indices.
    std::vector<Expr> windows, shape;
    for (size_t i = 0; i < x.rank(); ++i)
      if (const auto axis = static_cast<int64_t>(i);
          !has(c.axes.collapsed, axis) && !has(c.axes.batch, axis))
        windows.push_back(sizes[i]);
    std::vector<int> is_window(windows.size() + batch.size());
    std::fill_n(is_window.begin(), windows.size(), 1);
    random_.shuffle(is_window);
    size_t next_window = 0, next_batch = 0;
    for (size_t i = 0; i < is_window.size(); ++i) {
      if (is_window[i]) c.axes.windows.push_back(static_cast<int64_t>(i));
      shape.push_back(is_window[i] ? windows[next_window++] : batch[order[next_batch++]]);
    }
    c.shape = Shape(std::move(shape));
    if (!fits(c.shape) || !fits(Shape(dims))) return std::nullopt;
    const DType dtype = random_.pick({DType::I32, DType::I32, DType::I64, DType::I16, DType::U8});
    c.indices = tensor(of_type({dtype, Shape(std::move(dims))}));
    if (c.outside == Outside::Never) c.indices = inside(c, x, is_bare);
    return c;
  }

  /// Positions at which the windows lie within x.
  Tensor inside(const GatherCase& c, const Shape& x, bool is_bare) {
    std::vector<Tensor> parts;
    for (size_t k = 0; k < c.axes.indexed.size(); ++k) {
      const auto axis = static_cast<size_t>(c.axes.indexed[k]);
      const bool is_whole = c.sizes[axis] == to_dim(x[axis]);
      const int64_t last = is_whole ? 0 : least(x[axis]) - c.sizes[axis].value();
      const auto start = static_cast<int64_t>(k);
      const Tensor part = is_bare ? c.indices : slice(c.indices, c.axes.vector, start, start + 1);
      parts.push_back(minimum(maximum(part, 0), std::min<int64_t>(last, 100)));
    }
    if (is_bare || parts.empty()) return parts.empty() ? c.indices : parts[0];
    return concat(parts, c.axes.vector);
  }

  Tensor tensor(NodeId id) { return detail::wrap(builder_, id); }

  void add_general_gather() {
    const detail::BuilderScope building(builder_);
    const NodeId x = any(kAnyType, 1);
    const auto c = random_windows(shape(x));
    if (!c) return;
    const Tensor fill = tensor(of_type({type(x).dtype, {}}));
    keep(detail::node_of(gather(tensor(x), c->indices, c->sizes, c->axes, c->outside, fill)));
  }

  void add_general_scatter() {
    const detail::BuilderScope building(builder_);
    const auto how = random_.pick({Scatter::Set, Scatter::Set, Scatter::Add, Scatter::Mul,
                                   Scatter::Max, Scatter::Min, Scatter::And, Scatter::Or});
    const std::optional<Monoid> monoid = detail::monoid_of(how);
    const NodeId x = any(monoid ? info(*monoid).types : kAnyType, 1);
    const auto c = random_windows(shape(x));
    if (!c) return;
    const Tensor updates = tensor(of_type({type(x).dtype, c->shape}));
    keep(detail::node_of(scatter(tensor(x), c->indices, updates, c->axes, how, c->outside)));
  }

  void add_gather() {
    if (gathers_windows_) return add_general_gather();
    const NodeId x = any(kAnyType, 1);
    const int64_t axis = random_.below(rank(x));
    const Expr& extent = shape(x)[static_cast<size_t>(axis)];
    if (least(extent) == 0) return;
    const NodeId indices = indices_within(extent);
    if (fits(gathered_shape(shape(x), shape(indices), axis)))
      keep(build::gather(graph_, x, indices, axis));
  }

  void add_scatter() {
    if (gathers_windows_) return add_general_scatter();
    const auto monoid = random_.pick<std::optional<Monoid>>(
        {Monoid::Sum, Monoid::Sum, std::nullopt, std::nullopt, Monoid::Max, Monoid::Min});
    const NodeId x = any(monoid ? info(*monoid).types : kAnyType, 1);
    const int64_t axis = random_.below(rank(x));
    const Expr& extent = shape(x)[static_cast<size_t>(axis)];
    if (least(extent) == 0) return;
    const NodeId indices = indices_within(extent);
    const Shape updates = gathered_shape(shape(x), shape(indices), axis);
    if (!fits(updates)) return;
    keep(build::scatter(graph_, {monoid, axis}, x, indices, of_type({type(x).dtype, updates})));
  }

  void add_reduce() {
    const auto monoid = random_.pick({Monoid::Sum, Monoid::Sum, Monoid::Sum, Monoid::Max,
                                      Monoid::Min, Monoid::Prod, Monoid::And, Monoid::Or});
    const NodeId x = any(info(monoid).types, 1);
    Axes axes = random_axes(x, 2);
    if (axes.empty()) axes.push_back(random_.below(rank(x)));
    keep(build::reduce(graph_, monoid, x, std::move(axes)));
  }

  /// Values that are made from the totals of their rows, and the totals of their columns, as a norm
  /// and its gradients have them.
  void add_rows_and_columns() {
    const NodeId x = any(kFloating, 2);
    const auto totals = [&](NodeId of) {
      const NodeId total = build::reduce(
          graph_, random_.pick({Monoid::Sum, Monoid::Sum, Monoid::Max}), of, {rank(of) - 1});
      Axes axes(static_cast<size_t>(rank(total)));
      std::iota(axes.begin(), axes.end(), 0);
      return build::broadcast(graph_, total, shape(of), axes);
    };
    const NodeId centered = build::map(graph_, ElementwiseOp::sub, {x, totals(x)});
    const NodeId y = build::map(graph_, ElementwiseOp::mul, {centered, totals(centered)});
    Axes rows(static_cast<size_t>(rank(x)) - 1);
    std::iota(rows.begin(), rows.end(), 0);
    const NodeId summed = random_.one_in(2) ? y : centered;
    keep(build::reduce(graph_, Monoid::Sum, summed, rows));
    if (random_.one_in(2)) keep(build::reduce(graph_, Monoid::Max, x, rows));
    keep(y);
  }

  void add_scan() {
    const Monoid monoid = random_.pick({Monoid::Sum, Monoid::Sum, Monoid::Sum, Monoid::Max,
                                        Monoid::Min, Monoid::Prod, Monoid::And, Monoid::Or});
    const NodeId x = any(info(monoid).types, 1);
    ScanOp op{.combiner = monoid, .axis = random_.below(rank(x))};
    op.reverse = random_.one_in(3);
    op.exclusive = random_.one_in(3);
    // Recurrences whose factors are small, and the first element that is not 0.
    const DType dtype = graph_[x].type.dtype;
    if (!kNumeric.contains(dtype) || !random_.one_in(16)) {
      keep(build::scan(graph_, op, x));
    } else if (is_floating(dtype) && random_.one_in(2)) {
      const NodeId factor = build::map(graph_, ElementwiseOp::tanh, {x});
      op.combiner = linear_recurrence(compute_type(dtype));
      op.part = random_.below(2);
      keep(build::scan(graph_, op, std::vector{factor, x}));
    } else {
      const DType wide = compute_type(dtype);
      CombinerBody body{{wide}, {0}, {}, {}};
      using Kind = CombinerStep::Kind;
      const uint32_t left = body.add({.kind = Kind::Left, .dtype = wide});
      const uint32_t right = body.add({.kind = Kind::Right, .dtype = wide});
      const uint32_t zero = body.add({.kind = Kind::Constant, .dtype = wide});
      const uint32_t none = add_row(body, ElementwiseOp::eq, {left, zero});
      body.results = {add_row(body, ElementwiseOp::select, {none, right, left})};
      op.combiner = Combiner(std::move(body));
      keep(build::scan(graph_, op, x));
    }
  }

  void add_arg_reduce() {
    const NodeId x = any(kOrdered, 1);
    const int64_t axis = random_.below(rank(x));
    if (least(shape(x)[static_cast<size_t>(axis)]) >= 1)
      keep(build::arg_reduce(graph_, random_.one_in(2), x, axis));
  }

  void add_arg_sort() {
    const NodeId x = any(kOrdered, 1);
    const int64_t axis = random_.below(rank(x));
    const auto extent = shape(x)[static_cast<size_t>(axis)].as_constant();
    if (!extent) return;
    const int64_t count = random_.one_in(2) ? *extent : random_.within(0, *extent);
    keep(build::arg_sort(graph_, {axis, random_.one_in(2)}, x, count));
  }

  void add_dot() {
    const NodeId x = any(kNumeric, 1);
    DotOp op;
    std::vector<Expr> right;  // the extents of the right operand, batch and contracted ones first
    int64_t products = 1;
    for (const Expr& extent : shape(x)) products *= std::max<int64_t>(most(extent), 1);
    for (int64_t axis = 0; axis < rank(x); ++axis) {
      const int64_t role = random_.below(4);
      if (role == 0) op.batch_left.push_back(axis);
      if (role == 1 || (axis == rank(x) - 1 && op.contract_left.empty() && role != 0))
        op.contract_left.push_back(axis);
    }
    for (int64_t axis : op.batch_left) right.push_back(shape(x)[static_cast<size_t>(axis)]);
    for (int64_t axis : op.contract_left) right.push_back(shape(x)[static_cast<size_t>(axis)]);
    for (int64_t i = random_.below(3); i > 0; --i) {
      right.push_back(random_extent());
      products *= std::max<int64_t>(most(right.back()), 1);
    }
    // Where each of these axes goes.
    Axes place(right.size());
    std::iota(place.begin(), place.end(), 0);
    if (random_.one_in(2)) random_.shuffle(place);
    std::vector<Expr> dims(right.size());
    for (size_t i = 0; i < right.size(); ++i) dims[static_cast<size_t>(place[i])] = right[i];
    size_t next = 0;
    for (size_t i = 0; i < op.batch_left.size(); ++i) op.batch_right.push_back(place[next++]);
    for (size_t i = 0; i < op.contract_left.size(); ++i) op.contract_right.push_back(place[next++]);

    std::vector<Expr> result;
    for (int64_t axis = 0; axis < rank(x); ++axis)
      if (std::find(op.contract_left.begin(), op.contract_left.end(), axis) ==
          op.contract_left.end())
        result.push_back(shape(x)[static_cast<size_t>(axis)]);
    result.insert(result.end(), right.begin() + static_cast<int64_t>(next), right.end());
    if (products > options_.max_products || !fits(Shape(dims)) || !fits(Shape(result))) return;

    const DType dtype = type(x).dtype;
    op.tf32 = dtype == DType::F32 && random_.one_in(8);
    const DType other_type = random_.pick(kAllDTypes);
    const DType result_type =
        accumulates_as(dtype, other_type) && random_.one_in(2) ? other_type : dtype;
    const NodeId y = of_type({dtype, Shape(std::move(dims))});
    keep(build::dot(graph_, x, y, std::move(op), result_type));
  }

  void add_random_bits() {
    const NodeId key = of_type({DType::U32, {2}});
    keep(build::random_bits(graph_, key, random_type(kAnyType).shape));
  }

  /// Outputs that take over inputs, as a training step has them: each is made from its input and
  /// from others, which may be taken over as well.
  void add_updates() {
    const NodeId x = random_.pick(graph_.inputs());
    std::vector<NodeId> updated{x};
    while (updated.size() < 3 && random_.one_in(2)) updated.push_back(add_input(type(x)));
    for (const NodeId input : updated) {
      NodeId other = random_.one_in(2) ? random_.pick(updated) : of_type(type(input));
      if (rank(other) > 0 && random_.one_in(3))
        other = build::reverse(graph_, other, random_axes(other, 2));
      updates_.emplace_back(updated_value(input, other), input);
    }
  }

  /// Many small outputs that are made alike and take over inputs, as those of an optimizer do. Some
  /// have equal sizes.
  void add_siblings() {
    const DType dtype = random_.pick({DType::F32, DType::F32, DType::BF16, DType::I32});
    const auto op = random_.pick({ElementwiseOp::add, ElementwiseOp::mul, ElementwiseOp::max});
    const bool sums = options_.reductions && is_floating(dtype) && random_.one_in(3);
    TensorType of_one;
    for (int64_t count = random_.within(6, 20); count > 0; --count) {
      if (of_one.shape.rank() == 0 || random_.one_in(3))
        of_one = {dtype, {random_.within(1, 40), random_.within(1, 17)}};
      const NodeId x = add_input(of_one), y = add_input(of_one);
      NodeId value = build::map(graph_, op, {x, y});
      if (sums) {
        const NodeId sum = build::reduce(graph_, Monoid::Sum, value, {1});
        value = build::map(graph_, ElementwiseOp::sub,
                           {value, build::broadcast(graph_, sum, of_one.shape, {0})});
      }
      updates_.emplace_back(value, x);
    }
  }

  NodeId updated_value(NodeId input, NodeId other) {
    const DType dtype = type(input).dtype;
    if (is_stored_float(dtype))
      return build::map(graph_, ElementwiseOp::select,
                        {of_type({DType::Bool, shape(input)}), input, other});
    const auto op = dtype == DType::Bool ? ElementwiseOp::logical_xor
                                         : random_.pick({ElementwiseOp::add, ElementwiseOp::mul,
                                                         ElementwiseOp::max, ElementwiseOp::sub});
    return build::map(graph_, op, {input, other});
  }

  /// The gradients of the sum of a value, for up to a few of the inputs that it depends on.
  void add_gradients() {
    const NodeId value = any(kFloating);
    Axes axes(static_cast<size_t>(rank(value)));
    std::iota(axes.begin(), axes.end(), 0);
    const NodeId loss =
        axes.empty() ? value : build::reduce(graph_, Monoid::Sum, value, std::move(axes));
    const std::vector<bool> needed = needed_by({loss});
    std::vector<NodeId> inputs;
    for (const NodeId input : graph_.inputs())
      if (needed[input.index] && is_arithmetic_float(type(input).dtype)) inputs.push_back(input);
    random_.shuffle(inputs);
    if (inputs.size() > 3) inputs.resize(3);
    if (inputs.empty()) return;
    const std::vector<NodeId> gradients = differentiate(graph_, loss, inputs);
    const std::vector<bool> used = needed_by(gradients);
    for (size_t i = 0; i < graph_.size(); ++i)
      if (used[i] && !fits(shape(NodeId(i)))) return;
    gradients_ = gradients;
  }

  std::vector<bool> needed_by(const std::vector<NodeId>& values) const {
    std::vector<bool> needed(graph_.size());
    for (const NodeId value : values) needed[value.index] = true;
    for (size_t i = graph_.size(); i-- > 0;)
      if (needed[i])
        for (const NodeId operand : graph_[NodeId(i)].operands) needed[operand.index] = true;
    return needed;
  }

  // Outputs: what nothing uses, up to a few, and at times something in the middle.

  void choose_outputs() {
    std::vector<bool> used(graph_.size());
    for (size_t i = 0; i < graph_.size(); ++i)
      for (NodeId operand : graph_[NodeId(i)].operands) used[operand.index] = true;
    std::vector<NodeId> candidates;
    for (NodeId id : values_)
      if (!used[id.index] && !graph_[id].as<InputOp>()) candidates.push_back(id);
    if (candidates.empty()) candidates.push_back(values_.back());
    random_.shuffle(candidates);
    if (candidates.size() > 4) candidates.resize(4);
    if (random_.one_in(3)) candidates.push_back(random_.pick(values_));

    std::vector<GraphOutput> outputs;
    std::vector<bool> taken(graph_.inputs().size());
    for (const auto& [node, input] : updates_) {
      const auto position = std::find(graph_.inputs().begin(), graph_.inputs().end(), input);
      const auto at = static_cast<uint32_t>(position - graph_.inputs().begin());
      taken[at] = true;
      outputs.push_back({node, "y" + std::to_string(outputs.size()), at});
    }
    candidates.insert(candidates.end(), gradients_.begin(), gradients_.end());
    for (NodeId id : candidates) {
      GraphOutput output{id, "y" + std::to_string(outputs.size()), {}};
      for (uint32_t i = 0; i < taken.size() && random_.one_in(2); ++i)
        if (!taken[i] && type(graph_.inputs()[i]) == type(id)) {
          taken[i] = true;
          output.updates = i;
          break;
        }
      outputs.push_back(std::move(output));
    }
    graph_.set_outputs(std::move(outputs));
  }

  Random random_;
  GraphOptions options_;
  // Drawn apart from all else, so that the graphs of other seeds do not depend on it.
  const bool gathers_windows_, sorts_, may_be_empty_,
      has_siblings_;  // may_be_empty_: the symbolic size
  // Functions of the builder add nodes, too.
  std::shared_ptr<detail::Builder> builder_ = std::make_shared<detail::Builder>("fuzz");
  Graph& graph_ = builder_->graph;
  std::optional<Expr> symbol_;
  std::vector<NodeId> values_;
  std::vector<std::pair<NodeId, NodeId>> updates_;  // output, input
  std::vector<NodeId> gradients_;
};

double special_value(Random& random, DType dtype) {
  const double infinity = std::numeric_limits<double>::infinity();
  const bool narrow = dtype == DType::F16;
  const double most = dtype == DType::F64   ? std::numeric_limits<double>::max()
                      : narrow              ? 65504.0
                      : dtype == DType::F32 ? double{std::numeric_limits<float>::max()}
                                            : 0x1.fep127;
  const double subnormal = dtype == DType::F64 ? 0x1p-1073 : narrow ? 0x1p-23 : 0x1p-131;
  switch (random.below(9)) {
    case 0:
      return std::numeric_limits<double>::quiet_NaN();
    case 1:
      return infinity;
    case 2:
      return -infinity;
    case 3:
      return -0.0;
    case 4:
      return 0.0;
    case 5:
      return subnormal * static_cast<double>(random.within(-3, 3));
    case 6:
      return most;
    case 7:
      return -most;
    default:
      return std::ldexp(random.normal(), static_cast<int>(random.within(-20, 20)));
  }
}

int64_t special_integer(Random& random, DType dtype) {
  const auto width = static_cast<int64_t>(8 * size_of(dtype));
  const uint64_t sign = uint64_t{1} << (width - 1);
  return random.pick({static_cast<int64_t>(sign), static_cast<int64_t>(sign - 1), int64_t{-1},
                      width - 1, width, int64_t{1} << 53});
}

enum class Values { Plain, Integers, Special };

void fill(HostTensor& x, Values values, Random& random) {
  for (int64_t i = 0; i < x.numel(); ++i) {
    const bool special = values == Values::Special && random.one_in(8);
    if (!is_floating(x.dtype()))
      x.set_int(i, special ? special_integer(random, x.dtype())
                           : random.within(x.dtype() == DType::Bool ? 0 : -9,
                                           x.dtype() == DType::Bool ? 1 : 9));
    else if (special)
      x.set_double(i, special_value(random, x.dtype()));
    else
      x.set_double(i, values == Values::Integers ? static_cast<double>(random.within(-4, 4))
                                                 : random.normal());
  }
}

}  // namespace

Graph random_graph(uint64_t seed, const GraphOptions& options) {
  return Generator(seed, options).run();
}

std::vector<HostTensor> random_inputs(const Graph& graph, uint64_t seed) {
  Random random(seed ^ 0x696e70757473);
  const Values values =
      random.pick({Values::Plain, Values::Plain, Values::Plain, Values::Integers, Values::Special});
  Sizes sizes;
  for (const Expr& symbol : graph.symbols()) {
    const Interval range = symbol.range();
    const int64_t divisor = std::max<int64_t>(symbol.divisor(), 1);
    const int64_t first = (range.min + divisor - 1) / divisor;
    const int64_t last = first == 0 && random.one_in(3) ? 0 : range.max / divisor;
    sizes.set(symbol.symbol_name(), divisor * random.within(first, last));
  }
  std::vector<HostTensor> inputs;
  for (NodeId id : graph.inputs()) {
    inputs.emplace_back(graph[id].type.dtype, sizes(graph[id].type.shape));
    fill(inputs.back(), values, random);
  }
  return inputs;
}

}  // namespace braze::fuzz
