#include "ir/graph/loop_form.h"

#include <algorithm>

#include "ir/support/text.h"

namespace braze {

namespace {

Expr axis_symbol(char letter, size_t axis, const Expr& extent) {
  // An empty axis has no index, so its symbol may have any range.
  const int64_t last = std::max<int64_t>(extent.range().max, 1);
  return Expr::symbol(letter + std::to_string(axis), {0, last == INT64_MAX ? INT64_MAX : last - 1});
}

// Row-major position of `index` in a tensor of `shape`.
Expr linearize(const std::vector<Expr>& index, const Shape& shape) {
  Expr position;
  for (size_t axis = 0; axis < shape.rank(); ++axis)
    position = position * shape[axis] + index[axis];
  return position;
}

std::vector<Expr> delinearize(Expr position, const Shape& shape) {
  std::vector<Expr> index(shape.rank());
  // A tensor without elements has no index to map.
  for (const Expr& extent : shape)
    if (extent.is_constant(0)) return index;
  for (size_t axis = shape.rank(); axis-- > 0;) {
    if (axis == 0) {
      index[axis] = position;
    } else {
      const Expr extent = max(shape[axis], 1);  // an extent that may be 0 cannot be a divisor
      index[axis] = mod(position, extent);
      position = floordiv(position, extent);
    }
  }
  return index;
}

// Maps an index of `to` to the index of the same element of `from`. Runs of axes with equal
// products of extents are matched first, so that most reshapes need no division.
std::vector<Expr> reshape_index(const std::vector<Expr>& index, const Shape& to,
                                const Shape& from) {
  std::vector<Expr> result(from.rank());
  size_t t = 0, f = 0;
  while (f < from.rank()) {
    // Grow both runs until their products agree.
    size_t t_end = t, f_end = f + 1;
    Expr t_product = 1, f_product = from[f];
    while (!(t_product == f_product)) {
      const bool grow_to =
          t_end < to.rank() && (f_end == from.rank() || proves_at_most(t_product, f_product));
      if (grow_to) {
        t_product *= to[t_end++];
      } else if (f_end < from.rank()) {
        f_product *= from[f_end++];
      } else {
        break;
      }
    }
    if (!(t_product == f_product)) {  // symbolic sizes do not align: takes all that is left
      t_end = to.rank();
      f_end = from.rank();
    }
    const auto slice = [](const auto& dims, size_t begin, size_t end) {
      return std::vector<Expr>(dims.begin() + static_cast<ptrdiff_t>(begin),
                               dims.begin() + static_cast<ptrdiff_t>(end));
    };
    const Expr position = linearize(slice(index, t, t_end), Shape(slice(to, t, t_end)));
    const auto part = delinearize(position, Shape(slice(from, f, f_end)));
    std::copy(part.begin(), part.end(), result.begin() + static_cast<ptrdiff_t>(f));
    t = t_end;
    f = f_end;
  }
  return result;
}

// Builds one loop form, by one operator() for each op.
class Builder {
 public:
  Builder(const Graph& graph, const Node& node) : graph_(graph), node_(node) {
    form_.domain = node.type.shape.dims();
    form_.result = node.type.dtype;
    form_.accumulator = compute_type(node.type.dtype);
    for (size_t axis = 0; axis < form_.domain.size(); ++axis)
      d_.push_back(domain_symbol(axis, form_.domain[axis]));
  }

  std::optional<LoopForm> build() {
    if (!std::visit([&](const auto& op) { return describe(op); }, node_.op)) return std::nullopt;
    return std::move(form_);
  }

 private:
  const TensorType& operand_type(size_t i) const { return graph_[node_.operands[i]].type; }

  uint32_t push(BodyStep step) {
    form_.body.push_back(std::move(step));
    return static_cast<uint32_t>(form_.body.size() - 1);
  }
  uint32_t load(uint32_t operand, std::vector<Expr> index,
                std::vector<RangeCondition> conditions = {}) {
    return push({.kind = BodyStep::Kind::Load,
                 .dtype = operand_type(operand).dtype,
                 .operand = operand,
                 .index = std::move(index),
                 .conditions = std::move(conditions)});
  }
  uint32_t apply(ElementwiseOp op, DType dtype, std::vector<uint32_t> arguments) {
    return push({.kind = BodyStep::Kind::Apply,
                 .dtype = dtype,
                 .op = op,
                 .arguments = std::move(arguments)});
  }
  uint32_t index(const Expr& expr, DType dtype) {
    return push({.kind = BodyStep::Kind::Index, .dtype = dtype, .expr = expr});
  }
  uint32_t constant(DType dtype, uint64_t bits) {
    return push({.kind = BodyStep::Kind::Constant, .dtype = dtype, .bits = bits});
  }
  uint32_t inside(std::vector<RangeCondition> conditions) {
    return push({.kind = BodyStep::Kind::Inside,
                 .dtype = DType::Bool,
                 .conditions = std::move(conditions)});
  }
  /// Loads operand 0 where the conditions hold, and operand 1 (a scalar) elsewhere.
  void load_or_fill(std::vector<Expr> at, std::vector<RangeCondition> conditions) {
    if (conditions.empty()) {
      load(0, std::move(at));
      return;
    }
    const uint32_t in = inside(conditions);
    const uint32_t value = load(0, std::move(at), std::move(conditions));
    const uint32_t fill = load(1, {});
    apply(ElementwiseOp::select, node_.type.dtype, {in, value, fill});
  }
  uint32_t converted(uint32_t value, DType to) {
    return form_.body[value].dtype == to ? value : apply(ElementwiseOp::convert, to, {value});
  }

  bool describe(const InputOp&) { return false; }
  bool describe(const CollectiveOp&) { return false; }
  bool describe(const AxisIndexOp&) { return false; }
  bool describe(const CustomCallOp&) { return false; }
  // It becomes other ops (compiler/passes/merge_sorts.h).
  bool describe(const ArgSortOp&) { return false; }
  bool describe(const ConstantOp& op) {
    if (op.value->numel() != 1) return false;
    constant(op.value->dtype(), op.value->get_bits(0));
    return true;
  }

  bool describe(const MapOp& op) {
    std::vector<uint32_t> arguments;
    for (uint32_t i = 0; i < node_.operands.size(); ++i)
      arguments.push_back(load(i, operand_type(i).shape.rank() == 0 ? std::vector<Expr>{} : d_));
    apply(op.op, node_.type.dtype, std::move(arguments));
    return true;
  }

  bool describe(const BroadcastOp& op) {
    std::vector<Expr> at;
    for (size_t i = 0; i < op.axes.size(); ++i) {
      const auto axis = static_cast<size_t>(op.axes[i]);
      const bool stretched = operand_type(0).shape[i].is_constant(1);
      at.push_back(stretched ? Expr(0) : d_[axis]);
    }
    load(0, std::move(at));
    return true;
  }

  bool describe(const ReshapeOp&) {
    load(0, reshape_index(d_, node_.type.shape, operand_type(0).shape));
    return true;
  }

  bool describe(const TransposeOp& op) {
    std::vector<Expr> at(d_.size());
    for (size_t i = 0; i < d_.size(); ++i) at[static_cast<size_t>(op.permutation[i])] = d_[i];
    load(0, std::move(at));
    return true;
  }

  bool describe(const SliceOp& op) {
    std::vector<Expr> at;
    for (size_t i = 0; i < d_.size(); ++i) at.push_back(op.starts[i] + d_[i] * Expr(op.strides[i]));
    load(0, std::move(at));
    return true;
  }

  bool describe(const PadOp& op) {
    std::vector<Expr> at;
    std::vector<RangeCondition> conditions;
    for (size_t i = 0; i < d_.size(); ++i) {
      const Expr& extent = operand_type(0).shape[i];
      const Expr shifted = d_[i] - op.low[i];
      const Expr step = op.interior[i] + 1;
      if (op.interior[i] != 0) conditions.push_back({mod(shifted, step), 0, 1});
      at.push_back(floordiv(shifted, step));
      if (!op.low[i].is_constant(0) || !op.high[i].is_constant(0))
        conditions.push_back({at.back(), 0, extent});
    }
    load_or_fill(std::move(at), std::move(conditions));
    return true;
  }

  bool describe(const WindowsOp& op) {
    std::vector<Expr> at = d_;
    std::vector<RangeCondition> conditions;
    for (size_t i = 0; i < op.axes.size(); ++i) {
      const auto axis = static_cast<size_t>(op.axes[i]), tap = static_cast<size_t>(op.taps[i]);
      const Expr& extent = operand_type(0).shape[axis];
      const Expr position =
          d_[axis] * Expr(op.strides[i]) + d_[tap] * Expr(op.dilations[i]) - op.low[i];
      if (!mod(position, op.gaps[i]).is_constant(0))
        conditions.push_back({mod(position, op.gaps[i]), 0, 1});
      at[axis] = floordiv(position, op.gaps[i]);
      if (!proves_in_bounds(at[axis], extent)) conditions.push_back({at[axis], 0, extent});
    }
    load_or_fill(std::move(at), std::move(conditions));
    return true;
  }

  bool describe(const ConcatOp& op) {
    const auto axis = static_cast<size_t>(op.axis);
    std::optional<uint32_t> chosen;
    Expr begin;
    // If the index has reached the range of a part, this part replaces those before it.
    for (uint32_t i = 0; i < node_.operands.size(); ++i) {
      const Expr& extent = operand_type(i).shape[axis];
      auto at = d_;
      at[axis] = d_[axis] - begin;
      std::vector<RangeCondition> conditions{{at[axis], 0, extent}};
      const uint32_t value = load(i, std::move(at), conditions);
      chosen = chosen ? apply(ElementwiseOp::select, node_.type.dtype,
                              {inside(conditions), value, *chosen})
                      : value;
      begin += extent;
    }
    return true;
  }

  bool describe(const ReverseOp& op) {
    auto at = d_;
    for (int64_t axis : op.axes) {
      const auto a = static_cast<size_t>(axis);
      at[a] = form_.domain[a] - 1 - d_[a];
    }
    load(0, std::move(at));
    return true;
  }

  bool describe(const IotaOp& op) {
    const uint32_t position = index(d_[static_cast<size_t>(op.axis)], DType::I64);
    converted(position, node_.type.dtype);
    return true;
  }

  bool describe(const SizeOp& op) {
    index(op.value, DType::I64);
    return true;
  }

  bool describe(const GatherOp& op) {
    const auto axis = static_cast<size_t>(op.axis);
    const size_t index_rank = operand_type(1).shape.rank();
    const uint32_t raw =
        load(1, {d_.begin() + op.axis, d_.begin() + op.axis + static_cast<ptrdiff_t>(index_rank)});
    const uint32_t which = converted(raw, DType::I64);
    std::vector<Expr> at(d_.begin(), d_.begin() + op.axis);
    at.push_back(Expr::symbol("v" + std::to_string(which), {}));
    at.insert(at.end(), d_.begin() + static_cast<ptrdiff_t>(axis + index_rank), d_.end());
    load(0, std::move(at));
    return true;
  }

  bool describe(const ScatterOp& op) {
    const auto axis = static_cast<ptrdiff_t>(op.axis);
    Placement placement{.axis = static_cast<size_t>(axis), .indices = 1, .at = {}, .start = 0};
    for (const Expr& extent : operand_type(1).shape) {
      placement.at.push_back(reduction_symbol(form_.reduction.size(), extent));
      form_.reduction.push_back(extent);
    }
    std::vector<Expr> at(d_.begin(), d_.begin() + axis);
    at.insert(at.end(), placement.at.begin(), placement.at.end());
    at.insert(at.end(), d_.begin() + axis + 1, d_.end());
    form_.placement = std::move(placement);
    form_.monoid = op.monoid;
    form_.accumulator =
        op.monoid ? accumulation_type(*op.monoid, node_.type.dtype) : node_.type.dtype;
    converted(load(2, std::move(at)), form_.accumulator);
    return true;
  }

  bool describe(const ReduceOp& op) {
    const Shape& shape = operand_type(0).shape;
    std::vector<Expr> at;
    size_t d = 0;
    for (size_t axis = 0; axis < shape.rank(); ++axis) {
      if (std::find(op.axes.begin(), op.axes.end(), static_cast<int64_t>(axis)) == op.axes.end()) {
        at.push_back(d_[d++]);
      } else {
        at.push_back(reduction_symbol(form_.reduction.size(), shape[axis]));
        form_.reduction.push_back(shape[axis]);
      }
    }
    form_.monoid = op.monoid;
    form_.accumulator = accumulation_type(op.monoid, operand_type(0).dtype);
    converted(load(0, std::move(at)), form_.accumulator);
    return true;
  }

  bool describe(const ArgReduceOp& op) {
    const auto axis = static_cast<size_t>(op.axis);
    const Expr& extent = operand_type(0).shape[axis];
    auto at = d_;
    at.insert(at.begin() + op.axis, reduction_symbol(0, extent));
    form_.reduction.push_back(extent);
    form_.arg_max = op.is_max;
    form_.accumulator = operand_type(0).dtype;
    load(0, std::move(at));
    return true;
  }

  bool describe(const ScanOp& op) {
    const auto axis = static_cast<size_t>(op.axis);
    auto at = d_;
    at[axis] = reduction_symbol(0, form_.domain[axis]);
    form_.reduction.push_back(form_.domain[axis]);
    form_.monoid = op.combiner.monoid();
    form_.running = {axis, op.reverse, op.exclusive, op.combiner, {}, static_cast<size_t>(op.part)};
    form_.accumulator = op.combiner.accumulation(form_.running->part, node_.type.dtype);
    for (size_t i = 0; i < node_.operands.size(); ++i) {
      const DType dtype = op.combiner.accumulation(i, operand_type(i).dtype);
      form_.running->parts.push_back(converted(load(static_cast<uint32_t>(i), at), dtype));
    }
    return true;
  }

  bool describe(const DotOp& op) {
    const Shape& left = operand_type(0).shape;
    const Shape& right = operand_type(1).shape;
    std::vector<Expr> left_at(left.rank()), right_at(right.rank());
    std::vector<bool> left_used(left.rank()), right_used(right.rank());
    size_t d = 0;
    for (size_t i = 0; i < op.batch_left.size(); ++i, ++d) {
      const auto l = static_cast<size_t>(op.batch_left[i]),
                 r = static_cast<size_t>(op.batch_right[i]);
      left_at[l] = right_at[r] = d_[d];
      left_used[l] = right_used[r] = true;
    }
    for (size_t i = 0; i < op.contract_left.size(); ++i) {
      const auto l = static_cast<size_t>(op.contract_left[i]),
                 r = static_cast<size_t>(op.contract_right[i]);
      left_at[l] = right_at[r] = reduction_symbol(i, left[l]);
      left_used[l] = right_used[r] = true;
      form_.reduction.push_back(left[l]);
    }
    for (size_t l = 0; l < left.rank(); ++l)
      if (!left_used[l]) left_at[l] = d_[d++];
    for (size_t r = 0; r < right.rank(); ++r)
      if (!right_used[r]) right_at[r] = d_[d++];
    form_.monoid = Monoid::Sum;
    form_.accumulator = compute_type(node_.type.dtype);
    form_.tf32 = op.tf32;
    form_.is_dot = true;
    const uint32_t x = converted(load(0, std::move(left_at)), form_.accumulator);
    const uint32_t y = converted(load(1, std::move(right_at)), form_.accumulator);
    apply(ElementwiseOp::mul, form_.accumulator, {x, y});
    return true;
  }

  // Element i is word i % 4 of Philox4x32-10 with counter i / 4 (Salmon et al., SC'11, as in
  // Random123). 32 x 32 -> 64 bit products are taken in i64, whose wrapped low bits are exact.
  bool describe(const RandomBitsOp&) {
    const uint32_t key[2] = {load(0, {Expr(0)}), load(0, {Expr(1)})};
    const Expr position = linearize(d_, node_.type.shape);
    const auto word = [&](const Expr& e) { return converted(index(e, DType::I64), DType::U32); };
    const auto u32 = [&](uint32_t v) { return constant(DType::U32, v); };
    const auto i64 = [&](uint64_t v) { return constant(DType::I64, v); };
    const Expr block = floordiv(position, 4);
    std::vector<uint32_t> c = {
        word(block),
        converted(apply(ElementwiseOp::shr, DType::I64, {index(block, DType::I64), i64(32)}),
                  DType::U32),
        u32(0), u32(0)};
    uint32_t k0 = key[0], k1 = key[1];
    const auto product = [&](uint32_t factor, uint32_t x) {
      const uint32_t wide =
          apply(ElementwiseOp::mul, DType::I64, {converted(x, DType::I64), i64(factor)});
      const uint32_t high =
          converted(apply(ElementwiseOp::shr, DType::I64, {wide, i64(32)}), DType::U32);
      return std::pair(high, converted(wide, DType::U32));
    };
    const auto exclusive_or = [&](uint32_t a, uint32_t b) {
      return apply(ElementwiseOp::logical_xor, DType::U32, {a, b});
    };
    for (int round = 0; round < 10; ++round) {
      if (round > 0) {
        k0 = apply(ElementwiseOp::add, DType::U32, {k0, u32(0x9E3779B9u)});
        k1 = apply(ElementwiseOp::add, DType::U32, {k1, u32(0xBB67AE85u)});
      }
      const auto [high0, low0] = product(0xD2511F53u, c[0]);
      const auto [high1, low1] = product(0xCD9E8D57u, c[2]);
      c = {exclusive_or(exclusive_or(high1, c[1]), k0), low1,
           exclusive_or(exclusive_or(high0, c[3]), k1), low0};
    }
    const Expr lane = mod(position, 4);
    uint32_t chosen = c[0];
    for (int i = 1; i < 4; ++i)
      chosen = apply(ElementwiseOp::select, DType::U32,
                     {inside({{lane, i, i + 1}}), c[static_cast<size_t>(i)], chosen});
    return true;
  }

  bool describe(const BarrierOp&) {
    for (uint32_t i = 1; i < node_.operands.size(); ++i) form_.waits_for.push_back(i);
    load(0, d_);
    return true;
  }

  bool describe(const ConstrainOp&) {
    load(0, d_);
    return true;
  }

  const Graph& graph_;
  const Node& node_;
  LoopForm form_;
  std::vector<Expr> d_;
};

}  // namespace

Expr domain_symbol(size_t axis, const Expr& extent) { return axis_symbol('d', axis, extent); }
Expr reduction_symbol(size_t axis, const Expr& extent) { return axis_symbol('r', axis, extent); }

std::optional<LoopForm> loop_form(const Graph& graph, NodeId node) {
  return Builder(graph, graph[node]).build();
}

}  // namespace braze
