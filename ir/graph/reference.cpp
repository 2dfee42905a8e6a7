#include "ir/graph/reference.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <unordered_map>

#include "ir/graph/axes.h"
#include "ir/graph/coarse.h"
#include "ir/graph/interpret.h"
#include "ir/graph/movement.h"
#include "ir/graph/rewrite.h"
#include "ir/graph/splat.h"
#include "ir/graph/uncertain.h"

namespace braze {
namespace {

using Dims = std::vector<int64_t>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A tensor of uncertain elements.
struct Value {
  DType dtype = DType::F32;
  Dims shape;
  std::vector<Uncertain> elements;

  bool is_scalar() const { return shape.empty(); }
  /// Element i, or the only element.
  const Uncertain& at(size_t i) const { return elements[is_scalar() ? 0 : i]; }
};

using Operands = std::span<const Value* const>;

Value exactly(const HostTensor& x) {
  Value value{x.dtype(), x.shape(), {}};
  value.elements.reserve(static_cast<size_t>(x.numel()));
  for (int64_t i = 0; i < x.numel(); ++i)
    value.elements.push_back(Uncertain::exactly(x.dtype(), x.get_bits(i)));
  return value;
}

/// The tensor with the most likely values.
HostTensor likely(const Value& x) {
  HostTensor tensor(x.dtype, x.shape);
  for (size_t i = 0; i < x.elements.size(); ++i)
    tensor.set_bits(static_cast<int64_t>(i), x.elements[i].bits);
  return tensor;
}

bool all_known(const Value& x) {
  return std::all_of(x.elements.begin(), x.elements.end(),
                     [](const Uncertain& e) { return e.known; });
}

bool is_finite(const Value& x) {
  return std::all_of(x.elements.begin(), x.elements.end(), [](const Uncertain& e) {
    return std::isfinite(e.low) && std::isfinite(e.high);
  });
}

void forget(Uncertain& x, DType dtype) {
  x = is_floating(dtype) ? Uncertain::anything(x.value) : Uncertain::guess(x.bits);
}

// Functions for elementwise rows.

/// How much more than a rounding a node may be off.
struct Leeway {
  bool relaxed = false, coarse = false, powers = false;
  bool by_nccl = false;  // for a reduction
  // For a contraction: whether it may leave out zeros of its left and of its right factor.
  std::array<bool, 2> leaves_out = {};
};

Value evaluate_rows(ElementwiseOp op, Operands operands, DType result, Leeway leeway);
void widen(Value& value, const Value& other);

class BodyEvaluator : public ScalarEmitter {
 public:
  explicit BodyEvaluator(Leeway leeway) : leeway_(leeway) {}

  Scalar hold(Value value) {
    const DType dtype = value.dtype;
    values_.push_back(std::move(value));
    return Scalar(this, static_cast<uint32_t>(values_.size() - 1), dtype);
  }
  Value take(const Scalar& x) { return std::move(values_[x.id()]); }

  Scalar constant(DType dtype, uint64_t bits) override {
    return hold({dtype, {}, {Uncertain::exactly(dtype, bits)}});
  }
  Scalar apply(ElementwiseOp op, std::span<const Scalar> operands, DType result) override {
    std::vector<const Value*> values;
    for (const Scalar& x : operands) values.push_back(&values_[x.id()]);
    return hold(evaluate_rows(op, values, result, leeway_));
  }

 private:
  Leeway leeway_;
  std::vector<Value> values_;
};

// A row by its short body, which is within 2^-21 of the formula in f64.
Value short_formula(ElementwiseOp op, Operands operands, Leeway leeway) {
  BodyEvaluator body(leeway);
  Scalar xyz[3];
  for (size_t i = 0; i < operands.size(); ++i)
    xyz[i] = convert(body.hold(*operands[i]), DType::F64);
  Value value = body.take(info(op).body(xyz[0], xyz[1], xyz[2]));
  value.dtype = DType::F32;
  for (Uncertain& x : value.elements) {
    if (x.is_anything()) continue;
    x = std::isfinite(x.value) ? rounded(x, DType::F32, {.ulps = 4}, /*relaxed=*/true)
                               : Uncertain::exactly(DType::F32, constant_bits(DType::F32, x.value));
  }
  return value;
}

Value evaluate_formula(ElementwiseOp op, Operands operands, DType result, Leeway leeway) {
  BodyEvaluator body(leeway);
  Scalar xyz[3];
  for (size_t i = 0; i < operands.size(); ++i)
    xyz[i] = convert(body.hold(*operands[i]), body_type(op, operands[i]->dtype));
  Value value = body.take(convert(info(op).body(xyz[0], xyz[1], xyz[2]), result));
  if (has_short_body(op, result)) widen(value, short_formula(op, operands, leeway));
  return value;
}

bool is_finite(const Uncertain& x) { return std::isfinite(x.low) && std::isfinite(x.high); }

// `exp` where a power that is below all normal numbers may be 0.
Uncertain flushed_power(const UncertainRow& row, const Uncertain& x) {
  constexpr double kLeast = 0x1p-126;
  const Uncertain power = row(x, x, x);
  if (!is_finite(x) || power.low >= kLeast) return power;
  return Uncertain::between(power.value, 0, std::max(power.high, kLeast));
}

// `exp` as an approximate power of two, whose argument is rounded once more.
Uncertain approximate_power(const UncertainRow& row, const Uncertain& x) {
  if (!is_finite(x)) return row(x, x, x);
  const double rounding = std::max(std::abs(x.low), std::abs(x.high)) * 0x1p-23;
  const Uncertain argument = Uncertain::between(x.value, x.low - rounding, x.high + rounding);
  return flushed_power(row, argument);
}

Value evaluate_rows(ElementwiseOp op, Operands operands, DType result, Leeway leeway) {
  if (info(op).op_class == OpClass::Formula) return evaluate_formula(op, operands, result, leeway);
  const Value* shaped = operands[0];
  for (const Value* x : operands)
    if (!x->is_scalar()) shaped = x;
  const bool coarse = leeway.coarse && result == DType::F32 && may_be_coarse(op);
  const bool is_exp = result == DType::F32 && op == ElementwiseOp::exp;
  const bool power = is_exp && leeway.powers;
  const bool flushed = is_exp && leeway.relaxed;  // softmax in front of a product
  const UncertainRow row(op, operands.back()->dtype, result, leeway.relaxed || coarse || power);
  const Value& x = *operands[0];
  const Value& y = *operands[std::min<size_t>(1, operands.size() - 1)];
  const Value& z = *operands.back();
  Value value{result, shaped->shape, {}};
  value.elements.reserve(shaped->elements.size());
  for (size_t i = 0; i < shaped->elements.size(); ++i)
    value.elements.push_back(power     ? approximate_power(row, x.at(i))
                             : flushed ? flushed_power(row, x.at(i))
                                       : row(x.at(i), y.at(i), z.at(i)));
  return value;
}

// Functions for sums and contractions.

/// How results of dtype `result` accumulate operands of dtype `operand`. Matrix units, which take
/// 16-bit and tf32 operands, truncate sums where other units round them, so their unit is twice as
/// large.
Accumulation accumulation(DType operand, DType result, bool matrix_unit, bool relaxed) {
  const double unit = operand == DType::F64 ? 0x1p-53 : matrix_unit ? 0x1p-23 : 0x1p-24;
  return {compute_type(operand), unit, result, relaxed};
}

/// An f32 operand in the form in which a matrix unit may take it: with 10 bits after the point,
/// rounded or truncated.
Uncertain as_tf32(const Uncertain& x) {
  constexpr uint64_t kDropped = (1 << 13) - 1;
  if (x.is_anything() || (x.known && (!std::isfinite(x.value) || (x.bits & kDropped) == 0)))
    return x;
  const auto error = [](double end) { return 0x1p-10 * std::abs(end) + 0x1p-136; };
  const Uncertain cut = Uncertain::between(x.value, x.low - error(x.low), x.high + error(x.high));
  const bool may_overflow = std::max(-x.low, x.high) >= 0x1.ffcp127;
  return may_overflow ? Uncertain::anything(x.value) : cut;
}

/// One operand of a contraction, as lines of elements that are multiplied.
struct DotSide {
  std::vector<Uncertain> elements;
  std::vector<double> value, radius;
  std::vector<int> lowest;             // lowest_bit of each value
  std::vector<uint8_t> finite, known;  // of each line

  DotSide(const Value& x, std::span<const int64_t> order, int64_t depth, bool tf32)
      : elements(pack(x.elements, order)) {
    for (Uncertain& e : elements) {
      if (tf32) e = as_tf32(e);
      value.push_back(e.value);
      radius.push_back(e.radius());
      lowest.push_back(lowest_bit(e.value));
    }
    for (size_t line = 0; depth > 0 && line < elements.size(); line += static_cast<size_t>(depth)) {
      bool all_finite = true, every_known = true;
      for (size_t i = line; i < line + static_cast<size_t>(depth); ++i) {
        all_finite &= std::isfinite(elements[i].value) && std::isfinite(radius[i]);
        every_known &= elements[i].known;
      }
      finite.push_back(all_finite);
      known.push_back(every_known);
    }
  }
};

UncertainSum finite_dot(const DotSide& x, size_t first_x, const DotSide& y, size_t first_y,
                        size_t depth, bool known) {
  const double* const a = x.value.data() + first_x;
  const double* const b = y.value.data() + first_y;
  const double* const radius_a = x.radius.data() + first_x;
  const double* const radius_b = y.radius.data() + first_y;
  const int* const lowest_a = x.lowest.data() + first_x;
  const int* const lowest_b = y.lowest.data() + first_y;
  UncertainSum sum;
  int quantum = std::numeric_limits<int>::max();
  for (size_t k = 0; k < depth; ++k) {
    const double deviation =
        std::abs(a[k]) * radius_b[k] + std::abs(b[k]) * radius_a[k] + radius_a[k] * radius_b[k];
    sum.add_product(a[k], b[k], deviation);
    if (a[k] != 0 && b[k] != 0) quantum = std::min(quantum, lowest_a[k] + lowest_b[k]);
  }
  sum.set_quantum(quantum);
  if (!known) sum.set_inexact();
  return sum;
}

/// A line of a contraction with infinities, NaN or unbounded elements. Its terms follow the rules
/// for mul, one by one, or are left out.
UncertainSum any_dot(const DotSide& x, size_t first_x, const DotSide& y, size_t first_y,
                     size_t depth, std::array<bool, 2> leaves_out) {
  const UncertainRow mul(ElementwiseOp::mul, DType::F64, DType::F64, false);
  UncertainSum sum;
  for (size_t k = 0; k < depth; ++k) {
    const Uncertain &a = x.elements[first_x + k], &b = y.elements[first_y + k];
    Uncertain term = mul({a.known, std::bit_cast<uint64_t>(a.value), a.value, a.low, a.high},
                         {b.known, std::bit_cast<uint64_t>(b.value), b.value, b.low, b.high}, {});
    // A multiply-add can add a product beyond the finite numbers without making it infinite first.
    const bool overflows =
        std::isinf(term.value) && std::isfinite(a.value) && std::isfinite(b.value);
    const bool is_open = (leaves_out[0] && a.value == 0) || (leaves_out[1] && b.value == 0);
    sum.add(overflows || (is_open && !std::isfinite(term.value)) ? Uncertain::anything(term.value)
                                                                 : term);
  }
  return sum;
}

// Permits also what `other` permits.
void widen(Value& value, const Value& other) {
  for (size_t i = 0; i < value.elements.size(); ++i) {
    Uncertain& x = value.elements[i];
    const Uncertain& y = other.elements[i];
    const bool same =
        x.known && y.known && (x.bits == y.bits || (std::isnan(x.value) && std::isnan(y.value)));
    if (same) continue;
    if (!is_floating(value.dtype)) {
      forget(x, value.dtype);
      continue;
    }
    const bool bounded = std::isfinite(x.low) && std::isfinite(x.high) && std::isfinite(y.low) &&
                         std::isfinite(y.high);
    x = bounded ? Uncertain::between(x.value, std::min(x.low, y.low), std::max(x.high, y.high))
                : Uncertain::anything(x.value);
  }
}

class ReferenceEvaluator {
 public:
  ReferenceEvaluator(const Node& node, Operands operands, const Sizes& sizes, Leeway leeway)
      : node_(node),
        operands_(operands),
        sizes_(sizes),
        relaxed_(leeway.relaxed),
        coarse_(leeway.coarse),
        powers_(leeway.powers),
        by_nccl_(leeway.by_nccl),
        leaves_out_(leeway.leaves_out) {
    result_ = {node.type.dtype, sizes(node.type.shape), {}};
    result_.elements.resize(static_cast<size_t>(checked_numel(result_.shape)));
  }

  Value run() {
    std::visit(*this, node_.op);
    return std::move(result_);
  }

  void operator()(const MapOp& op) {
    result_ = evaluate_rows(op.op, operands_, node_.type.dtype, {relaxed_, coarse_, powers_});
  }

  void operator()(const GatherOp& op) {
    const Value &x = *operands_[0], &indices = *operands_[1];
    const AxisLoop loop(x.shape, op.axis);
    const std::vector<int64_t> rows = checked_rows(indices, loop.extent);
    for (const auto& [slice, element] : indexed_elements(loop, rows))
      result_.elements[slice] = x.elements[element];
    const int64_t lines = static_cast<int64_t>(rows.size());
    for (size_t i = 0; i < result_.elements.size(); ++i)
      if (!indices.elements[i / loop.inner % lines].known) forget(result_.elements[i], x.dtype);
  }

  void operator()(const ScatterOp& op) {
    const Value &x = *operands_[0], &indices = *operands_[1], &updates = *operands_[2];
    const AxisLoop loop(x.shape, op.axis);
    const auto pairs = indexed_elements(loop, checked_rows(indices, loop.extent));
    const bool is_sum = op.monoid == Monoid::Sum, is_prod = op.monoid == Monoid::Prod;
    if (!is_sum && !is_prod) {
      result_.elements = x.elements;
      std::optional<UncertainRow> row;
      if (op.monoid) row.emplace(info(*op.monoid).combine, x.dtype, x.dtype, relaxed_);
      for (const auto& [update, element] : pairs) {
        Uncertain& total = result_.elements[element];
        total = row ? (*row)(total, updates.elements[update], {}) : updates.elements[update];
      }
    } else if (!is_floating(x.dtype)) {
      guess();
      for (size_t i = 0; i < x.elements.size(); ++i) taint(i, x.elements[i]);
      for (const auto& [update, element] : pairs) taint(element, updates.elements[update]);
    } else if (is_sum) {
      std::vector<UncertainSum> sums(x.elements.size());
      for (size_t i = 0; i < x.elements.size(); ++i) sums[i].add(x.elements[i]);
      for (const auto& [update, element] : pairs) sums[element].add(updates.elements[update]);
      finish(sums);
    } else {
      std::vector<UncertainProduct> products(x.elements.size());
      for (size_t i = 0; i < x.elements.size(); ++i) products[i].multiply(x.elements[i]);
      for (const auto& [update, element] : pairs)
        products[element].multiply(updates.elements[update]);
      finish(products);
    }
    if (!all_known(indices))
      for (Uncertain& e : result_.elements) forget(e, x.dtype);
  }

  void operator()(const ReduceOp& op) {
    const Value& x = *operands_[0];
    const std::vector<int64_t> targets = reduction_targets(x.shape, op.axes);
    const bool is_sum = op.monoid == Monoid::Sum, is_prod = op.monoid == Monoid::Prod;
    if (!is_sum && !is_prod) {
      combine(info(op.monoid), x, targets);
      if (by_nccl_ && is_floating(x.dtype)) leave_open(x, targets);
    } else if (!is_floating(x.dtype)) {
      guess();
      for (size_t i = 0; i < targets.size(); ++i) taint(targets[i], x.elements[i]);
    } else if (is_sum) {
      std::vector<UncertainSum> sums(result_.elements.size());
      for (size_t i = 0; i < targets.size(); ++i) sums[targets[i]].add(x.elements[i]);
      finish(sums);
    } else {
      std::vector<UncertainProduct> products(result_.elements.size());
      for (size_t i = 0; i < targets.size(); ++i) products[targets[i]].multiply(x.elements[i]);
      finish(products);
    }
  }

  void operator()(const ArgReduceOp& op) {
    const Value& x = *operands_[0];
    const AxisLoop loop(x.shape, op.axis);
    guess();  // this also checks for empty axes
    for (size_t i = 0; i < result_.elements.size(); ++i) {
      const auto best = static_cast<int64_t>(result_.elements[i].bits);
      for (int64_t k = 0; k < loop.extent; ++k)
        if (k != best &&
            !surely_loses(op.is_max, x, loop.element(i, k), loop.element(i, best), k < best))
          forget(result_.elements[i], DType::I64);
    }
  }

  void operator()(const ArgSortOp& op) {
    const Value& x = *operands_[0];
    const AxisLoop from(x.shape, op.axis), to(result_.shape, op.axis);
    guess();
    for (int64_t line = 0; line < to.outer * to.inner; ++line) {
      std::vector<int64_t> uncertain;  // elements of the line
      for (int64_t k = 0; k < from.extent; ++k)
        if (!x.elements[from.element(line, k)].known) uncertain.push_back(k);
      // An index is known if no other element can change sides with its own.
      const auto is_known = [&](int64_t chosen) {
        const auto is_sure_beside = [&](int64_t other) {
          return other == chosen ||
                 is_sure(x, from.element(line, other), from.element(line, chosen));
        };
        if (x.elements[from.element(line, chosen)].known)
          return std::ranges::all_of(uncertain, is_sure_beside);
        for (int64_t other = 0; other < from.extent; ++other)
          if (!is_sure_beside(other)) return false;
        return true;
      };
      for (int64_t k = 0; k < to.extent; ++k) {
        Uncertain& index = result_.elements[to.element(line, k)];
        if (!is_known(static_cast<int64_t>(index.bits))) forget(index, DType::I64);
      }
    }
  }

  void operator()(const ScanOp& op) {
    if (op.combiner.body()) return scan_tuples(op);
    const Value& x = *operands_[0];
    const bool is_sum = op.combiner.is(Monoid::Sum), is_prod = op.combiner.is(Monoid::Prod);
    if ((is_sum || is_prod) && !is_floating(x.dtype)) {
      guess();
      run(
          op, x, true, [&](bool& known, const Uncertain& e) { known &= e.known; },
          [&](bool known, Uncertain& to) {
            if (!known) forget(to, x.dtype);
          });
      return;
    }
    const Accumulation how = accumulation(x.dtype, result_.dtype, false, relaxed_);
    const auto finish = [&](const auto& total, Uncertain& to) { to = total.finish(how); };
    if (is_sum) {
      run(
          op, x, UncertainSum(), [](UncertainSum& sum, const Uncertain& e) { sum.add(e); }, finish);
    } else if (is_prod) {
      run(
          op, x, UncertainProduct(),
          [](UncertainProduct& product, const Uncertain& e) { product.multiply(e); }, finish);
    } else {
      const MonoidInfo& monoid = info(*op.combiner.monoid());
      const UncertainRow row(monoid.combine, x.dtype, x.dtype, relaxed_);
      run(
          op, x, Uncertain::exactly(x.dtype, monoid.identity(x.dtype)),
          [&](Uncertain& total, const Uncertain& e) { total = row(total, e, {}); },
          [](const Uncertain& total, Uncertain& to) { to = total; });
    }
  }

  void operator()(const DotOp& op) {
    const Value &left = *operands_[0], &right = *operands_[1];
    const MatrixProducts products(op, left.shape, right.shape);
    const DotSide x(left, products.left, products.depth, op.tf32),
        y(right, products.right, products.depth, op.tf32);
    if (!is_floating(left.dtype)) guess();
    const Accumulation how =
        accumulation(left.dtype, result_.dtype, is_half(left.dtype) || op.tf32, relaxed_);
    const auto depth = static_cast<size_t>(products.depth);
    size_t i = 0;
    for (int64_t batch = 0; batch < products.batches; ++batch)
      for (int64_t row = 0; row < products.rows; ++row)
        for (int64_t column = 0; column < products.columns; ++column, ++i) {
          const auto a = static_cast<size_t>(batch * products.rows + row);
          const auto b = static_cast<size_t>(batch * products.columns + column);
          const bool known = depth == 0 || (x.known[a] && y.known[b]);
          if (!is_floating(left.dtype)) {
            if (!known) forget(result_.elements[i], left.dtype);
          } else if (depth == 0 || (x.finite[a] && y.finite[b])) {
            result_.elements[i] = finite_dot(x, a * depth, y, b * depth, depth, known).finish(how);
          } else {
            result_.elements[i] =
                any_dot(x, a * depth, y, b * depth, depth, leaves_out_).finish(how);
          }
        }
  }

  void operator()(const RandomBitsOp&) {
    guess();
    if (!all_known(*operands_[0]))
      for (Uncertain& e : result_.elements) e = Uncertain::guess(e.bits);
  }
  void operator()(const InputOp&) {
    BRAZE_CHECK(false, "an input has no operands to compute from");
  }
  void operator()(const CollectiveOp&) { fail_needs_mesh(node_); }
  void operator()(const AxisIndexOp&) { fail_needs_mesh(node_); }
  void operator()(const CustomCallOp&) {
    guess();
    // Nothing is known about how the function's result depends on its operands.
    if (!std::ranges::all_of(operands_, [](const Value* x) { return all_known(*x); }))
      for (Uncertain& e : result_.elements) forget(e, result_.dtype);
  }
  void operator()(const ConstantOp& op) { result_ = exactly(*op.value); }
  void operator()(const IotaOp&) { guess(); }
  void operator()(const SizeOp&) { guess(); }

  template <class Movement>
  void operator()(const Movement&) {
    std::vector<Dims> shapes;
    for (const Value* x : operands_) shapes.push_back(x->shape);
    // A zero outside of windows may be the product of a zero and an infinity.
    const bool may_multiply = std::is_same_v<Movement, WindowsOp> && relaxed_ &&
                              is_floating(result_.dtype) && operands_[1]->elements[0].value == 0 &&
                              !is_finite(*operands_[0]);
    size_t i = 0;
    for (const Source& source : movement_sources(node_, shapes, sizes_)) {
      Uncertain& element = result_.elements[i++];
      element = operands_[source.operand]->elements[source.index];
      if (may_multiply && source.operand == 1) forget(element, result_.dtype);
    }
  }

 private:
  /// Takes the result of the interpreter, which counts as known until an operand makes it unknown.
  void guess() {
    std::vector<HostTensor> tensors;
    std::vector<const HostTensor*> pointers;
    for (const Value* x : operands_) {
      tensors.push_back(likely(*x));
      if (is_floating(x->dtype))
        for (int64_t i = 0; i < tensors.back().numel(); ++i)
          tensors.back().set_double(i, x->elements[i].value);
    }
    for (const HostTensor& x : tensors) pointers.push_back(&x);
    result_ = exactly(evaluate(node_, pointers, sizes_));
  }

  void taint(int64_t target, const Uncertain& by) {
    if (!by.known) forget(result_.elements[target], result_.dtype);
  }

  template <class Accumulator>
  void finish(const std::vector<Accumulator>& totals) {
    const DType dtype = operands_[0]->dtype;
    Accumulation how = accumulation(dtype, result_.dtype, false, relaxed_);
    if (by_nccl_) {
      how.accumulator = dtype;
      how.unit = std::ldexp(1.0, -(info(dtype).fraction + 1));
    }
    for (size_t i = 0; i < totals.size(); ++i) result_.elements[i] = totals[i].finish(how);
  }

  void combine(const MonoidInfo& monoid, const Value& x, std::span<const int64_t> targets) {
    const UncertainRow row(monoid.combine, x.dtype, x.dtype, relaxed_);
    for (Uncertain& e : result_.elements) e = Uncertain::exactly(x.dtype, monoid.identity(x.dtype));
    for (size_t i = 0; i < targets.size(); ++i) {
      Uncertain& total = result_.elements[targets[i]];
      total = row(total, x.elements[i], {});
    }
  }

  /// Of the greatest or least of some floats: which of a NaN and a number, and which of two zeros.
  void leave_open(const Value& x, std::span<const int64_t> targets) {
    struct Seen {
      bool nan = false, number = false, zero = false, minus_zero = false;
    };
    std::vector<Seen> seen(result_.elements.size());
    for (size_t i = 0; i < targets.size(); ++i) {
      const Uncertain& e = x.elements[i];
      Seen& so_far = seen[targets[i]];
      (std::isnan(e.value) ? so_far.nan : so_far.number) = true;
      if (e.value == 0) (std::signbit(e.value) ? so_far.minus_zero : so_far.zero) = true;
    }
    for (size_t i = 0; i < seen.size(); ++i) {
      Uncertain& e = result_.elements[i];
      if (seen[i].nan && seen[i].number) forget(e, x.dtype);
      if (e.known && e.value == 0 && seen[i].zero && seen[i].minus_zero)
        e = Uncertain::between(e.value, e.low, e.high);
    }
  }

  /// Scans tuples, all lines at once. Implementations combine in any order, so each row may be off
  /// by 4 ulp. They also may or may not combine the first element with the identity.
  void scan_tuples(const ScanOp& op) {
    const CombinerBody& body = *op.combiner.body();
    const AxisLoop loop(operands_[0]->shape, op.axis);
    const auto lines = static_cast<size_t>(loop.outer * loop.inner);
    const auto rows = [](ElementwiseOp row, const std::vector<Value>& arguments,
                         std::optional<DType> dtype) {
      std::vector<const Value*> list;
      for (const Value& argument : arguments) list.push_back(&argument);
      return evaluate_rows(row, list, *dtype, {.relaxed = true});
    };
    const auto converted = [&](Value x, DType to) {
      return x.dtype == to ? x : rows(ElementwiseOp::convert, {std::move(x)}, to);
    };
    std::vector<Value> total;
    for (size_t part = 0; part < body.dtypes.size(); ++part)
      total.push_back({body.dtypes[part],
                       {loop.outer * loop.inner},
                       std::vector<Uncertain>(
                           lines, Uncertain::exactly(body.dtypes[part], body.identity[part]))});
    const auto store = [&](int64_t at) {
      const Value narrow = converted(total[static_cast<size_t>(op.part)], result_.dtype);
      for (size_t i = 0; i < lines; ++i)
        result_.elements[static_cast<size_t>(loop.element(static_cast<int64_t>(i), at))] =
            narrow.elements[i];
    };
    for (int64_t k = 0; k < loop.extent; ++k) {
      const int64_t at = op.reverse ? loop.extent - 1 - k : k;
      if (op.exclusive) store(at);
      std::vector<Value> own;
      for (size_t part = 0; part < body.dtypes.size(); ++part) {
        Value line{operands_[part]->dtype, {loop.outer * loop.inner}, {}};
        for (size_t i = 0; i < lines; ++i)
          line.elements.push_back(
              operands_[part]
                  ->elements[static_cast<size_t>(loop.element(static_cast<int64_t>(i), at))]);
        own.push_back(converted(std::move(line), body.dtypes[part]));
      }
      const std::vector<Value> before = total;
      total = op.combiner.combine(total, own, rows, [](DType dtype, uint64_t bits) {
        return Value{dtype, {}, {Uncertain::exactly(dtype, bits)}};
      });
      for (size_t part = 0; part < total.size(); ++part) {
        const DType dtype = total[part].dtype;
        if (k == 0) widen(total[part], own[part]);
        for (size_t i = 0; is_floating(dtype) && i < lines; ++i)
          regroup(total[part].elements[i], before[part].elements[i], own[part].elements[i], dtype);
      }
      if (!op.exclusive) store(at);
    }
  }

  /// What other groupings of tuples permit for a total, which is made of the total before and an
  /// element. The parts of their groups are as large as these. Whether an infinity meets a factor
  /// that is 0 depends on the grouping, and so does the sign of zero, which identities change.
  static void regroup(Uncertain& total, const Uncertain& before, const Uncertain& own,
                      DType dtype) {
    if (!std::isfinite(total.value) || total.is_anything()) return forget(total, dtype);
    if (total.value == 0 && total.known) total = Uncertain::between(0, 0, 0);
    if (total.known) return;
    const double largest =
        std::max({std::abs(total.value), std::abs(before.value), std::abs(own.value)});
    const double error = std::isfinite(largest) ? 4 * ulp(dtype, largest) : kInfinity;
    if (error == kInfinity) return forget(total, dtype);
    if (largest == 0) return;
    total = Uncertain::between(total.value, total.low - error, total.high + error);
  }

  /// Scans x. The total begins as `first`; `add` adds an element to it, and `finish` makes a result
  /// of it.
  template <class Total, class Add, class Finish>
  void run(const ScanOp& op, const Value& x, const Total& first, Add&& add, Finish&& finish) {
    for_each_line(op, x.shape, [&](std::span<const int64_t> line) {
      Total total = first;
      for (const int64_t i : line) {
        const auto at = static_cast<size_t>(i);
        if (op.exclusive) finish(total, result_.elements[at]);
        add(total, x.elements[at]);
        if (!op.exclusive) finish(total, result_.elements[at]);
      }
    });
  }

  /// Whether no implementation can prefer `candidate` to `best`. `before` says that the candidate
  /// comes first, so that it wins ties.
  bool surely_loses(bool is_max, const Value& x, int64_t candidate, int64_t best,
                    bool before) const {
    const Uncertain &c = x.elements[candidate], &b = x.elements[best];
    if (c.known && b.known) return true;  // the interpreter chose `best`
    if (!is_floating(x.dtype) || c.is_anything() || b.is_anything())
      return b.known && std::isnan(b.value) && !before;
    if (std::isnan(b.value)) return true;
    if (before) return is_max ? c.high < b.low : c.low > b.high;
    return is_max ? c.high <= b.low : c.low >= b.high;
  }

  /// Whether all implementations agree which of two elements comes first when they are sorted.
  static bool is_sure(const Value& x, int64_t one, int64_t other) {
    const Uncertain &a = x.elements[one], &b = x.elements[other];
    if (a.known && b.known) return true;
    if (!is_floating(x.dtype) || a.is_anything() || b.is_anything()) return false;
    if (std::isnan(a.value) || std::isnan(b.value)) return true;
    return a.high < b.low || b.high < a.low;
  }

  /// The most likely indices. Indices that are not known are clamped to the axis.
  std::vector<int64_t> checked_rows(const Value& indices, int64_t extent) const {
    std::vector<int64_t> rows;
    for (const Uncertain& e : indices.elements) {
      const int64_t row = bits_to_int(indices.dtype, e.bits);
      if (e.known || extent == 0)
        check_index(node_, row, static_cast<int64_t>(rows.size()), extent);
      rows.push_back(e.known ? row : std::clamp<int64_t>(row, 0, std::max<int64_t>(extent - 1, 0)));
    }
    return rows;
  }

  const Node& node_;
  Operands operands_;
  const Sizes& sizes_;
  bool relaxed_, coarse_, powers_, by_nccl_;
  std::array<bool, 2> leaves_out_;
  Value result_;
};

Bounded bounded(const Value& x) {
  Bounded result{HostTensor(is_floating(x.dtype) ? DType::F64 : x.dtype, x.shape), {}};
  result.bound.reserve(x.elements.size());
  for (size_t i = 0; i < x.elements.size(); ++i) {
    const Uncertain& e = x.elements[i];
    const auto at = static_cast<int64_t>(i);
    if (is_floating(x.dtype))
      result.value.set_double(at, e.value);
    else
      result.value.set_bits(at, e.bits);
    double bound = e.known ? 0 : kInfinity;
    // A bound of 0 would fix the sign of zero.
    if (!e.known && is_floating(x.dtype) && !e.is_anything())
      bound = std::max(e.radius() * (1 + 0x1p-50), std::numeric_limits<double>::denorm_min());
    result.bound.push_back(bound);
  }
  return result;
}

// A graph with other forms of some of its sums behind it.
struct Alternatives {
  Graph graph;
  std::unordered_map<uint32_t, std::vector<NodeId>> by_sum;

  Alternatives(const Graph& source, std::span<const Interchange> forms) : graph(source) {
    std::vector<GraphOutput> outputs = source.outputs();
    for (const Interchange& form : forms) {
      const NodeId other = interchanged(graph, source, form, std::identity());
      by_sum[form.sum.index].push_back(other);
      outputs.push_back({other, {}, {}});
    }
    graph.set_outputs(std::move(outputs));
  }

  std::span<const NodeId> of(NodeId sum) const {
    const auto found = by_sum.find(sum.index);
    return found == by_sum.end() ? std::span<const NodeId>() : found->second;
  }
};

}  // namespace

std::vector<bool> relaxed_nodes(const Graph& graph, Precision precision) {
  if (precision != Precision::Standard)
    return std::vector<bool>(graph.size(), precision == Precision::Fast);
  std::vector<bool> relaxed =
      seen_nodes(graph, [](const Graph&, const Node& node) { return accumulates(node); });
  relaxed.flip();
  return relaxed;
}

Leeways leeways(const Graph& graph, Precision precision) {
  if (precision == Precision::Strict)
    return {relaxed_nodes(graph, precision),
            std::vector<bool>(graph.size()),
            std::vector<bool>(graph.size()),
            {}};
  Leeways all{relaxed_nodes(graph, precision), coarse_nodes(graph), {}, {}};
  all.powers = approximate_powers(graph);
  for (Interchange& form : find_interchanges(graph, precision))
    if (form.verdict == &interchanges::kInterchanged) all.interchanges.push_back(std::move(form));
  return all;
}

std::vector<Bounded> reference(const Graph& graph, std::span<const HostTensor> inputs,
                               Precision precision, std::span<const NodeId> by_nccl) {
  Leeways all = leeways(graph, precision);
  all.by_nccl.resize(by_nccl.empty() ? 0 : graph.size());
  for (const NodeId node : by_nccl) all.by_nccl[node.index] = true;
  return reference(graph, inputs, all);
}

namespace {

/// For each node: whether a condition on positions, or on loaded integers and bools, makes some of
/// its elements 0, so that contractions may leave them out. A select with such a condition hides
/// elements, and so does what is computed from it element by element: the exp of -inf is 0.
std::vector<bool> hiding_nodes(const Graph& graph) {
  std::vector<bool> is_condition(graph.size()), hides(graph.size());
  for (size_t i = 0; i < graph.size(); ++i) {
    const Node& node = graph[NodeId(i)];
    const auto operand = [](const std::vector<bool>& which) {
      return [&which](NodeId x) { return static_cast<bool>(which[x.index]); };
    };
    is_condition[i] = !is_floating(node.type.dtype) && !node.as<RandomBitsOp>() &&
                      std::ranges::all_of(node.operands, operand(is_condition));
    const auto* map = node.as<MapOp>();
    hides[i] = map && map->op == ElementwiseOp::select && is_condition[node.operands[0].index];
    if (map || node.as<BroadcastOp>() || node.as<ReshapeOp>() || node.as<TransposeOp>())
      hides[i] = hides[i] || std::ranges::any_of(node.operands, operand(hides));
  }
  return hides;
}

}  // namespace

std::vector<Bounded> reference(const Graph& graph, std::span<const HostTensor> inputs,
                               const Leeways& leeways) {
  const Sizes sizes = check_inputs(graph, inputs);
  const Alternatives alternatives(graph, leeways.interchanges);
  const Graph& all = alternatives.graph;
  std::vector<uint32_t> uses = count_uses(all);
  std::vector<Value> values(all.size());
  std::vector<bool> done(all.size());
  const std::vector<bool> hides = hiding_nodes(all);
  for (size_t i = 0; i < inputs.size(); ++i) {
    values[graph.inputs()[i].index] = exactly(inputs[i]);
    done[graph.inputs()[i].index] = true;
  }

  const auto is_relaxed = [&](NodeId id) {
    return id.index >= graph.size() || leeways.relaxed[id.index];
  };
  // Whether a contraction may leave out the zeros of a factor: those that hide something, and those
  // that windows put between elements.
  const auto leaves_out = [&](NodeId factor) {
    if (hides[factor.index]) return true;
    while (all[factor].as<ReshapeOp>() || all[factor].as<TransposeOp>())
      factor = all[factor].operands[0];
    const auto* op = all[factor].as<WindowsOp>();
    return op && is_relaxed(factor) && splat(all, all[factor].operands[1]) == 0.0 &&
           std::ranges::any_of(op->gaps, [](int64_t gap) { return gap > 1; });
  };
  const std::function<void(NodeId)> compute = [&](NodeId id) {
    if (done[id.index]) return;
    done[id.index] = true;
    const Node& node = all[id];
    std::vector<const Value*> operands;
    for (const NodeId operand : node.operands) {
      compute(operand);
      operands.push_back(&values[operand.index]);
    }
    const bool written = id.index < graph.size();
    const bool by_nccl = written && !leeways.by_nccl.empty() && leeways.by_nccl[id.index];
    Leeway leeway{is_relaxed(id), written && leeways.coarse[id.index],
                  written && leeways.powers[id.index], by_nccl};
    if (node.as<DotOp>())
      leeway.leaves_out = {leaves_out(node.operands[0]), leaves_out(node.operands[1])};
    Value value = ReferenceEvaluator(node, operands, sizes, leeway).run();
    for (const NodeId other : alternatives.of(id)) {
      compute(other);
      widen(value, values[other.index]);
    }
    values[id.index] = std::move(value);
    for (const NodeId operand : node.operands)
      if (--uses[operand.index] == 0) values[operand.index] = {};  // after its last use
  };
  for (size_t i = 0; i < graph.size(); ++i)
    if (uses[i]) compute(NodeId(i));

  std::vector<Bounded> outputs;
  for (const GraphOutput& output : graph.outputs())
    outputs.push_back(bounded(values[output.node.index]));
  return outputs;
}

}  // namespace braze
