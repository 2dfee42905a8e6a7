#include "ir/graph/interpret.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ir/graph/axes.h"
#include "ir/graph/custom_calls.h"
#include "ir/graph/movement.h"
#include "ir/ops/machine_semantics.h"
#include "ir/support/text.h"
#include "ir/values/bools.h"
#include "ir/values/compensated.h"
#include "ir/values/philox.h"

namespace braze {
namespace {

using Dims = std::vector<int64_t>;
using Operands = std::span<const HostTensor* const>;

// Functions that read all elements of a tensor.

template <class T>
std::vector<uint64_t> widen(const HostTensor& x) {
  const auto elements = x.as<T>();
  return {elements.begin(), elements.end()};
}

/// The bits of every element.
std::vector<uint64_t> all_bits(const HostTensor& x) {
  switch (size_of(x.dtype())) {
    case 1:
      return widen<uint8_t>(x);
    case 2:
      return widen<uint16_t>(x);
    case 4:
      return widen<uint32_t>(x);
    default:
      return widen<uint64_t>(x);
  }
}

std::vector<double> all_doubles(const HostTensor& x) {
  if (x.dtype() == DType::F32) return {x.as<float>().begin(), x.as<float>().end()};
  std::vector<double> values(x.numel());
  for (int64_t i = 0; i < x.numel(); ++i) values[i] = x.get_double(i);
  return values;
}

// Formula rows run their bodies on whole tensors.

class BodyEvaluator : public ScalarEmitter {
 public:
  Scalar hold(HostTensor value) {
    const DType dtype = value.dtype();
    values_.push_back(std::move(value));
    return Scalar(this, static_cast<uint32_t>(values_.size() - 1), dtype);
  }
  HostTensor take(const Scalar& x) { return std::move(values_[x.id()]); }

  Scalar constant(DType dtype, uint64_t bits) override {
    HostTensor value(dtype, {});
    value.set_bits(0, bits);
    return hold(std::move(value));
  }
  Scalar apply(ElementwiseOp op, std::span<const Scalar> operands, DType result) override {
    std::vector<const HostTensor*> values;
    for (const Scalar& x : operands) values.push_back(&values_[x.id()]);
    return hold(evaluate_map(op, values, result));
  }

 private:
  std::vector<HostTensor> values_;
};

HostTensor evaluate_formula(ElementwiseOp op, Operands operands, DType result) {
  BodyEvaluator body;
  Scalar xyz[3];
  for (size_t i = 0; i < operands.size(); ++i)
    xyz[i] = convert(body.hold(*operands[i]), body_type(op, operands[i]->dtype()));
  return body.take(convert(info(op).body(xyz[0], xyz[1], xyz[2]), result));
}

bool is_scalar(const HostTensor* x) { return x->shape().empty(); }

/// The shape of the operands that are not scalars.
Dims common_shape(Operands operands) {
  const auto shaped = std::find_if_not(operands.begin(), operands.end(), is_scalar);
  return shaped == operands.end() ? Dims{} : (*shaped)->shape();
}

HostTensor evaluate_math_row(ElementwiseOp op, Operands operands) {
  const HostTensor &x = *operands.front(), &y = *operands.back();
  HostTensor result(x.dtype(), common_shape(operands));
  const int64_t x_step = !is_scalar(&x), y_step = !is_scalar(&y);
  for (int64_t i = 0; i < result.numel(); ++i)
    result.set_double(i, evaluate_math(op, x.get_double(i * x_step), y.get_double(i * y_step)));
  return result;
}

HostTensor evaluate_machine_row(ElementwiseOp op, Operands operands, DType result_type) {
  HostTensor result(result_type, common_shape(operands));

  std::vector<uint64_t> bits[3];
  size_t step[3] = {};  // 0 for scalars and absent operands
  for (size_t k = 0; k < 3; ++k) {
    bits[k] = k < operands.size() ? all_bits(*operands[k]) : std::vector<uint64_t>{0};
    step[k] = k < operands.size() && !is_scalar(operands[k]);
  }
  const MachineFunction row = machine_function(op, operands.back()->dtype(), result_type);
  BRAZE_CHECK(row, std::string(name(op)) + " is not defined on these dtypes");
  for (size_t i = 0; i < static_cast<size_t>(result.numel()); ++i)
    result.set_bits(i, row(bits[0][i * step[0]], bits[1][i * step[1]], bits[2][i * step[2]]));
  return result;
}

// Sums, products and contractions. An accumulator takes elements of its Element type, and rounds
// the result once. The three accumulators differ only in their precision.

/// Accumulates integers, modulo 2^64.
struct IntegerAccumulator {
  static std::vector<uint64_t> elements(const HostTensor& x) {
    std::vector<uint64_t> values(x.numel());
    for (int64_t i = 0; i < x.numel(); ++i) values[i] = static_cast<uint64_t>(x.get_int(i));
    return values;
  }
  uint64_t total;
  explicit IntegerAccumulator(int64_t start) : total(static_cast<uint64_t>(start)) {}
  void add(uint64_t x) { total += x; }
  void multiply(uint64_t x) { total *= x; }
  void add_product(uint64_t x, uint64_t y) { total += x * y; }
  void store(HostTensor& to, int64_t i) const { to.set_int(i, static_cast<int64_t>(total)); }
};

/// Accumulates 16-bit and 32-bit floats in double.
struct FloatAccumulator {
  static std::vector<double> elements(const HostTensor& x) { return all_doubles(x); }
  double total;
  explicit FloatAccumulator(int64_t start) : total(static_cast<double>(start)) {}
  void add(double x) { total += x; }
  void multiply(double x) { total *= x; }
  void add_product(double x, double y) { total += x * y; }
  void store(HostTensor& to, int64_t i) const { to.set_double(i, total); }
};

/// Accumulates f64 in twice its precision.
struct DoubleAccumulator {
  static std::vector<double> elements(const HostTensor& x) { return all_doubles(x); }
  Compensated total;
  explicit DoubleAccumulator(int64_t start) : total{static_cast<double>(start), 0} {}
  void add(double x) { total.add(x); }
  void multiply(double x) { total.multiply(x); }
  void add_product(double x, double y) { total.add_product(x, y); }
  void store(HostTensor& to, int64_t i) const { to.set_double(i, total.value()); }
};

/// Calls `f` with a null pointer, whose type says which accumulator operands of `dtype` have.
template <class F>
void with_accumulator(DType dtype, F&& f) {
  if (!is_floating(dtype))
    f(static_cast<IntegerAccumulator*>(nullptr));
  else if (dtype != DType::F64)
    f(static_cast<FloatAccumulator*>(nullptr));
  else
    f(static_cast<DoubleAccumulator*>(nullptr));
}

/// Computes, for each target, the sum or product of the elements of `x` with that target.
template <class Accumulator>
void accumulate(const ReduceOp& op, const HostTensor& x, std::span<const int64_t> targets,
                HostTensor& result) {
  const bool is_sum = op.monoid == Monoid::Sum;
  std::vector<Accumulator> totals(result.numel(), Accumulator(is_sum ? 0 : 1));
  const auto elements = Accumulator::elements(x);
  for (size_t i = 0; i < elements.size(); ++i)
    is_sum ? totals[targets[i]].add(elements[i]) : totals[targets[i]].multiply(elements[i]);
  for (int64_t i = 0; i < result.numel(); ++i) totals[i].store(result, i);
}

/// Combines by max, min, and, or. These are exact, so any order gives the same result.
void combine(const MonoidInfo& monoid, const HostTensor& x, std::span<const int64_t> targets,
             HostTensor& result) {
  const MachineFunction row = machine_function(monoid.combine, x.dtype(), x.dtype());
  std::vector<uint64_t> totals(result.numel(), monoid.identity(x.dtype()));
  const std::vector<uint64_t> elements = all_bits(x);
  for (size_t i = 0; i < elements.size(); ++i)
    totals[targets[i]] = row(totals[targets[i]], elements[i], 0);
  for (int64_t i = 0; i < result.numel(); ++i) result.set_bits(i, totals[i]);
}

/// Computes, for each element, the sum or product of its line up to that element.
template <class Accumulator>
void accumulate(const ScanOp& op, const HostTensor& x, HostTensor& result) {
  const bool is_sum = op.combiner.is(Monoid::Sum);
  const auto elements = Accumulator::elements(x);
  for_each_line(op, x.shape(), [&](std::span<const int64_t> line) {
    Accumulator total(is_sum ? 0 : 1);
    for (const int64_t i : line) {
      if (op.exclusive) total.store(result, i);
      is_sum ? total.add(elements[static_cast<size_t>(i)])
             : total.multiply(elements[static_cast<size_t>(i)]);
      if (!op.exclusive) total.store(result, i);
    }
  });
}

/// Scans by max, min, and, or.
void combine(const ScanOp& op, const HostTensor& x, HostTensor& result) {
  const MonoidInfo& monoid = info(*op.combiner.monoid());
  const MachineFunction row = machine_function(monoid.combine, x.dtype(), x.dtype());
  for_each_line(op, x.shape(), [&](std::span<const int64_t> line) {
    uint64_t total = monoid.identity(x.dtype());
    for (const int64_t i : line) {
      const uint64_t next = row(total, x.get_bits(i), 0);
      result.set_bits(i, op.exclusive ? total : next);
      total = next;
    }
  });
}

/// Scans tuples: the elements at one index along the axis, of all lines at once, are combined with
/// those before them.
void scan_tuples(const ScanOp& op, Operands operands, HostTensor& result) {
  const CombinerBody& body = *op.combiner.body();
  const AxisLoop loop(operands[0]->shape(), op.axis);
  const int64_t lines = loop.outer * loop.inner;
  std::vector<HostTensor> total;
  for (size_t part = 0; part < body.dtypes.size(); ++part) {
    total.emplace_back(body.dtypes[part], Dims{lines});
    for (int64_t i = 0; i < lines; ++i) total[part].set_bits(i, body.identity[part]);
  }
  const auto convert_to = [](const HostTensor& x, DType dtype) {
    const HostTensor* only[] = {&x};
    return x.dtype() == dtype ? x : evaluate_map(ElementwiseOp::convert, only, dtype);
  };
  const auto store = [&](int64_t at) {
    const HostTensor narrow = convert_to(total[static_cast<size_t>(op.part)], result.dtype());
    for (int64_t i = 0; i < lines; ++i) result.set_bits(loop.element(i, at), narrow.get_bits(i));
  };
  for (int64_t k = 0; k < loop.extent; ++k) {
    const int64_t at = op.reverse ? loop.extent - 1 - k : k;
    if (op.exclusive) store(at);
    std::vector<HostTensor> own;
    for (size_t part = 0; part < body.dtypes.size(); ++part) {
      HostTensor line(operands[part]->dtype(), {lines});
      for (int64_t i = 0; i < lines; ++i)
        line.set_bits(i, operands[part]->get_bits(loop.element(i, at)));
      own.push_back(convert_to(line, body.dtypes[part]));
    }
    total = op.combiner.combine(
        total, own,
        [](ElementwiseOp row, const std::vector<HostTensor>& arguments,
           std::optional<DType> dtype) {
          std::vector<const HostTensor*> list;
          for (const HostTensor& argument : arguments) list.push_back(&argument);
          return evaluate_map(row, list, *dtype);
        },
        [](DType dtype, uint64_t bits) {
          HostTensor literal(dtype, {});
          literal.set_bits(0, bits);
          return literal;
        });
    if (!op.exclusive) store(at);
  }
}

template <class Accumulator>
void contract(const HostTensor& left, const HostTensor& right, const MatrixProducts& products,
              HostTensor& result) {
  const auto x = pack(Accumulator::elements(left), products.left);
  const auto y = pack(Accumulator::elements(right), products.right);
  const int64_t depth = products.depth;
  int64_t i = 0;
  for (int64_t batch = 0; batch < products.batches; ++batch)
    for (int64_t row = 0; row < products.rows; ++row)
      for (int64_t column = 0; column < products.columns; ++column) {
        const auto* a = x.data() + (batch * products.rows + row) * depth;
        const auto* b = y.data() + (batch * products.columns + column) * depth;
        Accumulator total(0);
        for (int64_t k = 0; k < depth; ++k) total.add_product(a[k], b[k]);
        total.store(result, i++);
      }
}

/// Whether `candidate` wins over `best`, which comes before it: it is greater (less), or the first
/// NaN.
template <class T>
bool wins(bool is_max, T candidate, T best) {
  if (best != best) return false;
  return candidate != candidate || (is_max ? candidate > best : candidate < best);
}

template <class Get>
int64_t find_extreme(bool is_max, int64_t count, Get&& get) {
  int64_t best = 0;
  for (int64_t k = 1; k < count; ++k)
    if (wins(is_max, get(k), get(best))) best = k;
  return best;
}

/// Whether x comes before y. A NaN comes after all numbers.
template <class T>
bool less(T x, T y) {
  return y != y ? x == x : x < y;
}

struct Evaluator {
  const Node& node;
  Operands operands;
  const Sizes& sizes;
  HostTensor result;  // begins with zeros

  void operator()(const InputOp&) {
    BRAZE_CHECK(false, "an input has no operands to compute from");
  }
  void operator()(const ConstantOp& op) { result = *op.value; }
  void operator()(const MapOp& op) { result = evaluate_map(op.op, operands, node.type.dtype); }

  void operator()(const IotaOp& op) {
    const AxisLoop loop(result.shape(), op.axis);
    for (int64_t i = 0; i < result.numel(); ++i)
      result.set_bits(i, constant_bits_int(result.dtype(), loop.index(i)));
  }

  void operator()(const SizeOp& op) {
    result.set_bits(0, constant_bits_int(DType::I64, sizes(op.value)));
  }

  void operator()(const GatherOp& op) {
    const AxisLoop loop(operands[0]->shape(), op.axis);
    const std::vector<int64_t> rows = checked_indices(*operands[1], loop.extent);
    for (const auto& [slice, element] : indexed_elements(loop, rows))
      result.set_bits(slice, operands[0]->get_bits(element));
  }

  void operator()(const ScatterOp& op) {
    const AxisLoop loop(result.shape(), op.axis);
    const std::vector<int64_t> rows = checked_indices(*operands[1], loop.extent);
    const DType dtype = result.dtype();
    if (!op.monoid) {
      result = *operands[0];
      for (const auto& [update, element] : indexed_elements(loop, rows))
        result.set_bits(element, operands[2]->get_bits(update));
      return;
    }
    // 16-bit floats accumulate in f32.
    const DType wide = accumulation_type(*op.monoid, dtype);
    const MachineFunction up = machine_function(ElementwiseOp::convert, dtype, wide);
    const MachineFunction down = machine_function(ElementwiseOp::convert, wide, dtype);
    const MachineFunction row = machine_function(info(*op.monoid).combine, wide, wide);
    std::vector<uint64_t> totals = all_bits(*operands[0]);
    for (uint64_t& total : totals) total = up(total, 0, 0);
    for (const auto& [update, element] : indexed_elements(loop, rows))
      totals[element] = row(totals[element], up(operands[2]->get_bits(update), 0, 0), 0);
    for (int64_t i = 0; i < result.numel(); ++i) result.set_bits(i, down(totals[i], 0, 0));
  }

  void operator()(const ReduceOp& op) {
    const HostTensor& x = *operands[0];
    const std::vector<int64_t> targets = reduction_targets(x.shape(), op.axes);
    if (op.monoid != Monoid::Sum && op.monoid != Monoid::Prod)
      return combine(info(op.monoid), x, targets, result);
    with_accumulator(x.dtype(), [&]<class Accumulator>(Accumulator*) {
      accumulate<Accumulator>(op, x, targets, result);
    });
  }

  void operator()(const ArgReduceOp& op) {
    const HostTensor& x = *operands[0];
    const AxisLoop loop(x.shape(), op.axis);
    if (loop.extent == 0 && result.numel() > 0)
      fail(codes::kEmptyArgReduce,
           fmt::format("axis {} is empty, so there is no element to choose", op.axis),
           {node.location, node.label, {}});
    for (int64_t i = 0; i < result.numel(); ++i) {
      const auto at = [&](int64_t k) { return loop.element(i, k); };
      const auto extreme = [&](auto&& get) { return find_extreme(op.is_max, loop.extent, get); };
      const auto integer = [&](int64_t k) { return x.get_int(at(k)); };
      result.set_int(i, is_floating(x.dtype())
                            ? extreme([&](int64_t k) { return x.get_double(at(k)); })
                        : is_unsigned_integer(x.dtype())
                            ? extreme([&](int64_t k) { return static_cast<uint64_t>(integer(k)); })
                            : extreme(integer));
    }
  }

  void operator()(const ArgSortOp& op) {
    const HostTensor& x = *operands[0];
    const AxisLoop from(x.shape(), op.axis), to(result.shape(), op.axis);
    std::vector<int64_t> order(static_cast<size_t>(from.extent));
    for (int64_t line = 0; line < from.outer * from.inner; ++line) {
      std::iota(order.begin(), order.end(), int64_t{0});
      const auto sort = [&](auto&& get) {
        std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
          const auto one = get(from.element(line, a)), other = get(from.element(line, b));
          return op.descending ? less(other, one) : less(one, other);
        });
      };
      const auto integer = [&](int64_t i) { return x.get_int(i); };
      if (is_floating(x.dtype()))
        sort([&](int64_t i) { return x.get_double(i); });
      else if (is_unsigned_integer(x.dtype()))
        sort([&](int64_t i) { return static_cast<uint64_t>(integer(i)); });
      else
        sort(integer);
      for (int64_t k = 0; k < to.extent; ++k)
        result.set_int(to.element(line, k), order[static_cast<size_t>(k)]);
    }
  }

  void operator()(const ScanOp& op) {
    const HostTensor& x = *operands[0];
    if (op.combiner.body()) return scan_tuples(op, operands, result);
    if (!op.combiner.is(Monoid::Sum) && !op.combiner.is(Monoid::Prod))
      return combine(op, x, result);
    with_accumulator(x.dtype(), [&]<class Accumulator>(Accumulator*) {
      accumulate<Accumulator>(op, x, result);
    });
  }

  void operator()(const DotOp& op) {
    const HostTensor &left = *operands[0], &right = *operands[1];
    const MatrixProducts products(op, left.shape(), right.shape());
    with_accumulator(left.dtype(), [&]<class Accumulator>(Accumulator*) {
      contract<Accumulator>(left, right, products, result);
    });
  }

  void operator()(const RandomBitsOp&) {
    const auto key = operands[0]->as<uint32_t>();
    for (int64_t i = 0; i < result.numel(); ++i)
      result.as<uint32_t>()[i] = philox_word(static_cast<uint64_t>(i), {key[0], key[1]});
  }

  void operator()(const CollectiveOp&) { fail_needs_mesh(node); }
  void operator()(const AxisIndexOp&) { fail_needs_mesh(node); }

  void operator()(const CustomCallOp& op) {
    const auto tensor = [](const HostTensor& x) {
      // The function is told not to write to operands.
      return CustomTensor{const_cast<std::byte*>(x.data()), x.dtype(), x.shape(), x.size_bytes()};
    };
    std::vector<CustomTensor> given;
    for (const HostTensor* x : operands) given.push_back(tensor(*x));
    const ErrorContext context{node.location, node.label.empty() ? op.target : node.label, {}};
    const auto function = need_custom_function(op, CustomMemory::Host, "the interpreter", context);
    call_custom_function(*function, {op.target, op.attributes, given, tensor(result)}, context);
    if (result.dtype() == DType::Bool) make_bools({result.data(), result.size_bytes()});
  }

  template <class Movement>
  void operator()(const Movement&) {
    std::vector<Dims> shapes;
    for (const HostTensor* x : operands) shapes.push_back(x->shape());
    int64_t i = 0;
    for (const Source& source : movement_sources(node, shapes, sizes))
      result.set_bits(i++, operands[source.operand]->get_bits(source.index));
  }

  /// The indices as integers, all below `extent`.
  std::vector<int64_t> checked_indices(const HostTensor& indices, int64_t extent) const {
    std::vector<int64_t> rows(indices.numel());
    for (int64_t i = 0; i < indices.numel(); ++i) {
      rows[i] = indices.get_int(i);
      check_index(node, rows[i], i, extent);
    }
    return rows;
  }
};

}  // namespace

double evaluate_math(ElementwiseOp op, double x, double y) {
  switch (op) {
    case ElementwiseOp::exp:
      return std::exp(x);
    case ElementwiseOp::exp2:
      return std::exp2(x);
    case ElementwiseOp::log:
      return std::log(x);
    case ElementwiseOp::log2:
      return std::log2(x);
    case ElementwiseOp::log1p:
      return std::log1p(x);
    case ElementwiseOp::expm1:
      return std::expm1(x);
    case ElementwiseOp::tanh:
      return std::tanh(x);
    case ElementwiseOp::sigmoid: {
      if (x >= 0) return 1 / (1 + std::exp(-x));
      const double e = std::exp(x);  // e^-x would overflow before the result is zero
      return e / (1 + e);
    }
    case ElementwiseOp::erf:
      return std::erf(x);
    case ElementwiseOp::erfc:
      return std::erfc(x);
    case ElementwiseOp::sin:
      return std::sin(x);
    case ElementwiseOp::cos:
      return std::cos(x);
    case ElementwiseOp::pow:
      return std::pow(x, y);
    default:
      BRAZE_CHECK(false, std::string(name(op)) + " is not a math row");
      return 0;
  }
}

HostTensor evaluate_map(ElementwiseOp op, std::span<const HostTensor* const> operands,
                        DType result) {
  switch (info(op).op_class) {
    case OpClass::Machine:
      return evaluate_machine_row(op, operands, result);
    case OpClass::Math:
      return evaluate_math_row(op, operands);
    case OpClass::Formula:
      return evaluate_formula(op, operands, result);
  }
  return {};
}

HostTensor evaluate(const Node& node, std::span<const HostTensor* const> operands,
                    const Sizes& sizes) {
  Evaluator evaluator{node, operands, sizes, HostTensor(node.type.dtype, sizes(node.type.shape))};
  std::visit(evaluator, node.op);
  return std::move(evaluator.result);
}

void fail_needs_mesh(const Node& node) {
  fail(codes::kNeedsMesh,
       fmt::format("{} is for the devices of a mesh, but this graph runs on one device alone",
                   op_name(node.op)),
       {node.location, node.label, "run it over a mesh, with spmd or `braze run --mesh`"});
}

void check_index(const Node& node, int64_t index, int64_t position, int64_t extent) {
  if (0 <= index && index < extent) return;
  fail(codes::kIndexOutOfRange,
       fmt::format("{}: index {} at position {} is not within an axis of {} elements",
                   op_name(node.op), index, position, extent),
       {node.location, node.label, {}});
}

std::vector<uint32_t> count_uses(const Graph& graph) {
  std::vector<uint32_t> uses(graph.size());
  for (const GraphOutput& output : graph.outputs()) ++uses[output.node.index];
  for (size_t i = graph.size(); i-- > 0;) {
    if (has_side_effects(graph[NodeId(i)])) ++uses[i];
    if (uses[i])
      for (NodeId operand : graph[NodeId(i)].operands) ++uses[operand.index];
  }
  return uses;
}

std::vector<HostTensor> interpret(const Graph& graph, std::span<const HostTensor> inputs) {
  const Sizes sizes = check_inputs(graph, inputs);
  std::vector<uint32_t> uses = count_uses(graph);
  std::vector<HostTensor> computed(graph.size());
  std::vector<const HostTensor*> values(graph.size());
  for (size_t i = 0; i < inputs.size(); ++i) values[graph.inputs()[i].index] = &inputs[i];

  for (size_t i = 0; i < graph.size(); ++i) {
    const Node& node = graph[NodeId(i)];
    if (!uses[i] || node.as<InputOp>()) continue;
    std::vector<const HostTensor*> operands;
    for (NodeId operand : node.operands) operands.push_back(values[operand.index]);
    computed[i] = evaluate(node, operands, sizes);
    values[i] = &computed[i];
    for (NodeId operand : node.operands)
      if (--uses[operand.index] == 0) computed[operand.index] = {};  // after its last use
  }

  std::vector<HostTensor> outputs;
  for (const GraphOutput& output : graph.outputs()) outputs.push_back(*values[output.node.index]);
  return outputs;
}

}  // namespace braze
