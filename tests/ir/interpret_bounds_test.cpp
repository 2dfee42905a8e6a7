// The bounds of the reference: sound against an implementation that uses all the leeway there is,
// and tight enough to catch one that takes a little more.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "ir/graph/axes.h"
#include "ir/graph/build.h"
#include "ir/graph/check.h"
#include "ir/graph/coarse.h"
#include "ir/graph/interpret.h"
#include "ir/graph/reference.h"
#include "ir/graph/text.h"
#include "ir/graph/uncertain.h"
#include "tests/fuzz/generator.h"
#include "tests/fuzz/random.h"

namespace braze {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// A second implementation: math rows off by what they may be, values that only reductions see off
/// by 4 ulp, sums and contractions in the accumulation dtype and in random order.
class Sloppy {
 public:
  explicit Sloppy(uint64_t seed, double excess = 1) : random_(seed), excess_(excess) {}

  std::vector<HostTensor> run(const Graph& graph, std::span<const HostTensor> inputs) {
    const Sizes sizes = check_inputs(graph, inputs);
    const std::vector<bool> relaxed = relaxed_nodes(graph), coarse = coarse_nodes(graph),
                            powers = approximate_powers(graph);
    const std::vector<uint32_t> uses = count_uses(graph);
    std::vector<HostTensor> values(graph.size());
    for (size_t i = 0; i < inputs.size(); ++i) values[graph.inputs()[i].index] = inputs[i];
    for (size_t i = 0; i < graph.size(); ++i) {
      const Node& node = graph[NodeId(i)];
      if (!uses[i] || node.as<InputOp>()) continue;
      std::vector<const HostTensor*> operands;
      for (NodeId operand : node.operands) operands.push_back(&values[operand.index]);
      const MapOp* map = node.as<MapOp>();
      const bool is_coarse =
          map && node.type.dtype == DType::F32 &&
          (coarse[i] ? may_be_coarse(map->op) : powers[i] && map->op == ElementwiseOp::exp);
      values[i] = evaluate_node(node, operands, sizes, relaxed[i] || is_coarse);
    }
    std::vector<HostTensor> outputs;
    for (const GraphOutput& output : graph.outputs()) outputs.push_back(values[output.node.index]);
    return outputs;
  }

 private:
  using Operands = std::span<const HostTensor* const>;

  class Body : public ScalarEmitter {
   public:
    Body(Sloppy& sloppy, bool relaxed) : sloppy_(sloppy), relaxed_(relaxed) {}
    Scalar hold(HostTensor value) {
      values_.push_back(std::move(value));
      return Scalar(this, static_cast<uint32_t>(values_.size() - 1), values_.back().dtype());
    }
    HostTensor take(const Scalar& x) { return values_[x.id()]; }
    Scalar constant(DType dtype, uint64_t bits) override {
      HostTensor value(dtype, {});
      value.set_bits(0, bits);
      return hold(std::move(value));
    }
    Scalar apply(ElementwiseOp op, std::span<const Scalar> operands, DType result) override {
      std::vector<const HostTensor*> values;
      for (const Scalar& x : operands) values.push_back(&values_[x.id()]);
      return hold(sloppy_.map(op, values, result, relaxed_));
    }

   private:
    Sloppy& sloppy_;
    bool relaxed_;
    std::vector<HostTensor> values_;
  };

  HostTensor map(ElementwiseOp op, Operands operands, DType result, bool relaxed) {
    if (info(op).op_class == OpClass::Formula) {
      Body body(*this, relaxed);
      Scalar xyz[3];
      for (size_t i = 0; i < operands.size(); ++i)
        xyz[i] = convert(body.hold(*operands[i]), body_type(op, operands[i]->dtype()));
      return body.take(convert(info(op).body(xyz[0], xyz[1], xyz[2]), result));
    }
    const auto element = [](const HostTensor& x, int64_t i) {
      return x.get_double(x.shape().empty() ? 0 : i);
    };
    HostTensor y = evaluate_map(op, operands, result);
    const bool is_math = !is_machine(op);
    const bool may_round = is_math || op == ElementwiseOp::add || op == ElementwiseOp::sub ||
                           op == ElementwiseOp::mul || op == ElementwiseOp::div ||
                           op == ElementwiseOp::fma || op == ElementwiseOp::sqrt;
    // A 16-bit result has no room for a smaller error than its own rounding. Half an ulp is spent
    // on the rounding of what is perturbed; f64 math may be off by what libm already is.
    const double ulps = is_math && result == DType::F32   ? (relaxed ? 3.5 : 0.5)
                        : is_math && result == DType::F64 ? 2
                        : relaxed && !is_half(result)     ? 3.5
                                                          : 0;
    if (!may_round || ulps == 0) return y;
    for (int64_t i = 0; i < y.numel(); ++i) {
      double exact = y.get_double(i);
      if (is_math && result == DType::F32)
        exact = evaluate_math(op, element(*operands.front(), i), element(*operands.back(), i));
      if (!std::isfinite(exact) || !std::isfinite(y.get_double(i)) || exact == 0) continue;
      const double spent = is_math || ulps < 1 ? ulps : ulps - 0.5;
      const double off = excess_ * spent * (2 * random_.unit() - 1) * ulp(result, exact);
      if (std::isfinite(exact + off) && (exact > 0) == (exact + off > 0))
        y.set_double(i, exact + off);
    }
    return y;
  }

  /// Adds (multiplies) in random order, rounding each step to the accumulation dtype.
  double accumulate(std::vector<double> terms, bool is_sum, DType accumulator) {
    random_.shuffle(terms);
    // As a random tree: combine neighbours until one is left.
    while (terms.size() > 1) {
      const auto at = static_cast<size_t>(
          random_.one_in(2) ? 0 : random_.below(static_cast<int64_t>(terms.size()) - 1));
      double& x = terms[at];
      x = is_sum ? x + terms[at + 1] : x * terms[at + 1];
      if (accumulator == DType::F32) x = static_cast<float>(x);
      terms.erase(terms.begin() + static_cast<int64_t>(at) + 1);
    }
    return terms.empty() ? (is_sum ? 0 : 1) : terms[0];
  }

  HostTensor evaluate_node(const Node& node, Operands operands, const Sizes& sizes, bool relaxed) {
    if (const MapOp* row = node.as<MapOp>())
      return map(row->op, operands, node.type.dtype, relaxed);
    HostTensor result = evaluate(node, operands, sizes);
    if (!is_floating(result.dtype())) return result;
    const DType accumulator =
        compute_type(operands.empty() ? result.dtype() : operands[0]->dtype());
    std::vector<std::vector<double>> terms(static_cast<size_t>(result.numel()));
    bool is_sum = true;
    if (const ReduceOp* op = node.as<ReduceOp>()) {
      is_sum = op->monoid == Monoid::Sum;
      if (!is_sum && op->monoid != Monoid::Prod) return result;
      const auto targets = reduction_targets(operands[0]->shape(), op->axes);
      for (size_t i = 0; i < targets.size(); ++i)
        terms[targets[i]].push_back(operands[0]->get_double(static_cast<int64_t>(i)));
    } else if (const DotOp* dot = node.as<DotOp>()) {
      const MatrixProducts products(*dot, operands[0]->shape(), operands[1]->shape());
      size_t i = 0;
      for (int64_t batch = 0; batch < products.batches; ++batch)
        for (int64_t row = 0; row < products.rows; ++row)
          for (int64_t column = 0; column < products.columns; ++column, ++i)
            for (int64_t k = 0; k < products.depth; ++k) {
              double a = operands[0]->get_double(
                  products.left[(batch * products.rows + row) * products.depth + k]);
              double b = operands[1]->get_double(
                  products.right[(batch * products.columns + column) * products.depth + k]);
              if (dot->tf32) a = cut_to_tf32(a), b = cut_to_tf32(b);
              terms[i].push_back(accumulator == DType::F32 ? static_cast<float>(a * b) : a * b);
            }
    } else {
      return result;
    }
    for (size_t i = 0; i < terms.size(); ++i)
      result.set_double(static_cast<int64_t>(i),
                        accumulate(std::move(terms[i]), is_sum, accumulator));
    return result;
  }

  static double cut_to_tf32(double x) {
    const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(x));
    return std::isnan(x) ? x : std::bit_cast<float>(bits & ~((1u << 13) - 1));
  }

  fuzz::Random random_;
  double excess_;
};

TEST(Bounds, HoldForAnImplementationThatUsesThem) {
  std::vector<double> medians, maxima;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    fuzz::GraphOptions options;
    options.max_elements = 512;
    const Graph graph = fuzz::random_graph(seed, options);
    const auto inputs = fuzz::random_inputs(graph, seed);
    const auto outputs = Sloppy(seed).run(graph, inputs);
    const CheckResult check = check_outputs(graph, inputs, outputs);
    ASSERT_TRUE(check.ok) << "seed " << seed << "\n" << check.summary() << "\n" << to_text(graph);
    for (const OutputCheck& output : check.outputs)
      if (!output.exact && output.comparison.median_ratio >= 0) {
        medians.push_back(output.comparison.median_ratio);
        maxima.push_back(output.comparison.max_ratio);
      }
  }
  std::sort(medians.begin(), medians.end());
  std::sort(maxima.begin(), maxima.end());
  const double median = medians[medians.size() / 2], maximum = maxima[maxima.size() / 2];
  printf("error in units of the bound: median %.3f, median of the maxima %.3f\n", median, maximum);
  EXPECT_GT(median, 0.02);
  EXPECT_GT(maximum, 0.1);
}

TEST(Bounds, CatchAnImplementationThatExceedsThem) {
  int caught = 0, graphs = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    fuzz::GraphOptions options;
    options.max_elements = 512;
    options.reductions = false;
    const Graph graph = fuzz::random_graph(seed, options);
    const auto inputs = fuzz::random_inputs(graph, seed);
    const auto outputs = Sloppy(seed, 8).run(graph, inputs);
    const auto right = interpret(graph, inputs);
    bool differs = false;
    for (size_t i = 0; i < right.size(); ++i) differs |= !identical(right[i], outputs[i]);
    graphs += differs;
    caught += !check_outputs(graph, inputs, outputs).ok;
  }
  printf("math rows 4 ulp off: caught in %d of %d graphs that show it\n", caught, graphs);
  EXPECT_GT(caught, graphs / 2);
}

TEST(Bounds, CatchSumsInTheWrongPrecision) {
  // 16-bit operands accumulate in f32. Here they do so in bf16.
  Graph graph;
  const NodeId x = build::input(graph, "x", {DType::BF16, {300}});
  graph.set_outputs({{build::reduce(graph, Monoid::Sum, x, {0}), "sum", {}}});
  fuzz::Random random(1);
  int caught = 0;
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::vector<HostTensor> inputs{HostTensor(DType::BF16, {300})};
    HostTensor sum(DType::BF16, {});
    for (int64_t i = 0; i < 300; ++i) {
      inputs[0].set_double(i, random.unit());
      sum.set_double(0, sum.get_double(0) + inputs[0].get_double(i));
    }
    const HostTensor got[] = {sum};
    caught += !check_outputs(graph, inputs, got).ok;
  }
  EXPECT_GE(caught, 12);  // the others are right by chance
}

// Single cases with a bound known by other means.

struct Case {
  Graph graph;
  std::vector<HostTensor> inputs;

  NodeId operator()(DType dtype, std::vector<int64_t> shape, const std::vector<double>& values) {
    HostTensor x(dtype, shape);
    for (size_t i = 0; i < values.size(); ++i) x.set_double(static_cast<int64_t>(i), values[i]);
    inputs.push_back(x);
    return build::input(graph, "x" + std::to_string(inputs.size()), {dtype, Shape::of(shape)});
  }
  NodeId map(ElementwiseOp op, std::vector<NodeId> operands, std::optional<DType> to = {}) {
    return build::map(graph, op, std::move(operands), {}, to);
  }
  Bounded run(NodeId output) {
    graph.set_outputs({{output, "y", {}}});
    return reference(graph, inputs)[0];
  }
};

TEST(Bounds, ExactWhereNothingIsLeftOpen) {
  Case c;
  const NodeId x = c(DType::F32, {3}, {0.1, -2, 1e30}), y = c(DType::F32, {3}, {3, 0.7, 1e30});
  const Bounded product = c.run(c.map(ElementwiseOp::mul, {x, y}));
  EXPECT_EQ(product.bound, (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(product.value.get_double(0), 0.1F * 3.0F);
  EXPECT_EQ(product.value.get_double(2), kInf);
}

TEST(Bounds, SumsOfSmallIntegersAreExact) {
  Case c;
  const NodeId x = c(DType::F32, {4}, {1, 2, -7, 100});
  EXPECT_EQ(c.run(build::reduce(c.graph, Monoid::Sum, x, {0})).bound[0], 0);
  EXPECT_EQ(c.run(build::dot(c.graph, x, x, {{}, {}, {0}, {0}})).bound[0], 0);
  EXPECT_EQ(c.run(build::reduce(c.graph, Monoid::Prod, x, {0})).bound[0], 0);
  const NodeId y = c(DType::F32, {3}, {0x1p24, 1, 1});
  EXPECT_GT(c.run(build::reduce(c.graph, Monoid::Sum, y, {0})).bound[0], 0);
}

TEST(Bounds, SumsGrowWithTheirTerms) {
  Case c;
  std::vector<double> values(1000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = 1.0 / static_cast<double>(i + 3);
  double total = 0;
  for (double v : values) total += static_cast<float>(v);
  const NodeId x = c(DType::F32, {1000}, values);
  const Bounded sum = c.run(build::reduce(c.graph, Monoid::Sum, x, {0}));
  EXPECT_NEAR(sum.value.get_double(0), total, 1e-12);
  EXPECT_NEAR(sum.bound[0], 999 * 0x1p-24 * total, 1e-3 * sum.bound[0]);
}

TEST(Bounds, MathRowsAtTheirUlp) {
  Case c;
  const NodeId x = c(DType::F32, {}, {0.3});
  const double value = std::exp(double{0.3F});
  const Bounded y = c.run(c.map(ElementwiseOp::exp, {x}));
  EXPECT_EQ(y.value.get_double(0), value);
  EXPECT_NEAR(y.bound[0], 0x1p-23, 1e-12);
  const NodeId h = c(DType::BF16, {}, {0.3});
  EXPECT_NEAR(c.run(c.map(ElementwiseOp::exp, {h})).bound[0], 0x1p-8, 1e-12);
}

TEST(Bounds, ComparisonsWithinTheErrorAreUnknown) {
  Case c;
  const NodeId x = c(DType::F32, {3}, {0.3, 0.3, 0.3});
  const NodeId e = c.map(ElementwiseOp::exp, {x});
  const auto exact = static_cast<float>(std::exp(double{0.3F}));
  const NodeId y = c(DType::F32, {3}, {0.5, exact, 2});
  const NodeId less = c.map(ElementwiseOp::lt, {e, y});
  const Bounded known = c.run(less);
  EXPECT_EQ(known.bound, (std::vector<double>{0, kInf, 0}));
  EXPECT_EQ(known.value.get_int(0), 0);
  EXPECT_EQ(known.value.get_int(2), 1);

  // select takes in both branches where the condition is open.
  const NodeId a = c(DType::F32, {3}, {10, 10, 10}), b = c(DType::F32, {3}, {20, 20, 20});
  const Bounded either = c.run(c.map(ElementwiseOp::select, {less, a, b}));
  EXPECT_EQ(either.bound[0], 0);
  EXPECT_NEAR(either.bound[1], 10, 1e-9);
  EXPECT_EQ(either.value.get_double(2), 10);
}

TEST(Bounds, DiscontinuitiesWithinTheError) {
  Case c;
  // log2(8) is 3, but an implementation may give the number below.
  const NodeId x = c(DType::F32, {2}, {8, 9});
  const NodeId l = c.map(ElementwiseOp::log2, {x});
  const Bounded floors = c.run(c.map(ElementwiseOp::floor, {l}));
  EXPECT_NEAR(floors.bound[0], 1, 1e-12);
  EXPECT_EQ(floors.bound[1], 0);
  EXPECT_EQ(c.run(c.map(ElementwiseOp::convert, {l}, DType::I32)).bound,
            (std::vector<double>{kInf, 0}));
  const NodeId three = c(DType::F32, {2}, {3, 3});
  const Bounded rem = c.run(c.map(ElementwiseOp::rem, {l, three}));
  EXPECT_GT(rem.bound[0], 2.9);
  EXPECT_LT(rem.bound[1], 1e-6);
  EXPECT_EQ(c.run(build::arg_reduce(c.graph, true, l, 0)).bound[0], 0);
  const NodeId near = build::concat(c.graph, {l, three}, 0);
  EXPECT_EQ(c.run(build::arg_reduce(c.graph, false, near, 0)).bound[0], kInf);
}

TEST(Bounds, Tf32OperandsLoseBits) {
  Case c;
  const auto dot = [&](double x, double y) {
    return c.run(build::dot(c.graph, c(DType::F32, {1}, {x}), c(DType::F32, {1}, {y}),
                            {{}, {}, {0}, {0}, true}));
  };
  EXPECT_EQ(dot(3, 5).bound[0], 0);
  EXPECT_NEAR(dot(1.0001, 1).bound[0], 0x1p-10, 1e-6);
  EXPECT_EQ(dot(0x1p-140, kInf).bound[0], kInf);  // 0 * inf, if the subnormal is cut off
  EXPECT_EQ(dot(std::numeric_limits<float>::max(), 0x1p-100).bound[0], kInf);  // inf, if rounded up
}

TEST(Bounds, RemainderOfAnUncertainNumberByZero) {
  Case c;
  const NodeId x = c(DType::F32, {2}, {0.3, 0}), zero = c(DType::F32, {2}, {0, 0});
  const Bounded rem = c.run(c.map(ElementwiseOp::rem, {c.map(ElementwiseOp::sin, {x}), zero}));
  EXPECT_EQ(rem.bound, (std::vector<double>{0, 0}));
  EXPECT_TRUE(std::isnan(rem.value.get_double(0)));
  EXPECT_TRUE(std::isnan(rem.value.get_double(1)));
}

TEST(Bounds, PolesAndOverflowLeaveAnythingOpen) {
  Case c;
  const NodeId x = c(DType::F32, {3}, {8, 16, 4}), three = c(DType::F32, {3}, {3, 3, 3});
  const NodeId near = c.map(ElementwiseOp::sub, {c.map(ElementwiseOp::log2, {x}), three});
  const Bounded inverse = c.run(c.map(ElementwiseOp::div, {three, near}));
  EXPECT_EQ(inverse.bound[0], kInf);
  EXPECT_LT(inverse.bound[1], 1e-5);
  const Bounded root = c.run(c.map(ElementwiseOp::sqrt, {near}));
  EXPECT_EQ(root.bound[0], kInf);
  EXPECT_LT(root.bound[1], 1e-5);
  EXPECT_TRUE(std::isnan(root.value.get_double(2)));
  EXPECT_EQ(root.bound[2], 0);

  const Bounded e = c.run(c.map(ElementwiseOp::exp, {c(DType::F32, {2}, {89, 88})}));
  EXPECT_EQ(e.bound[0], 0);
  EXPECT_EQ(e.value.get_double(0), kInf);
  EXPECT_LT(e.bound[1], 1e32);
  const double half_of_most = std::numeric_limits<float>::max() / 2;
  const NodeId l = c(DType::F32, {1}, {half_of_most});
  const NodeId twice =
      c.map(ElementwiseOp::add, {l, c.map(ElementwiseOp::exp, {c.map(ElementwiseOp::log, {l})})});
  EXPECT_EQ(c.run(twice).bound[0], kInf);  // about the greatest f32
  EXPECT_EQ(c.run(build::reduce(c.graph, Monoid::Sum, c(DType::F32, {3}, {3e38, 3e38, -3e38}), {0}))
                .bound[0],
            kInf);
}

TEST(Bounds, InfinitiesAndNaNInSums) {
  Case c;
  const auto sum = [&](const std::vector<double>& values) {
    return c.run(build::reduce(c.graph, Monoid::Sum, c(DType::F32, {3}, values), {0}));
  };
  EXPECT_EQ(sum({1, kInf, 0.3}).value.get_double(0), kInf);
  EXPECT_EQ(sum({1, kInf, 0.3}).bound[0], 0);
  EXPECT_TRUE(std::isnan(sum({-kInf, kInf, 0.3}).value.get_double(0)));
  EXPECT_EQ(sum({-kInf, kInf, 0.3}).bound[0], 0);
  EXPECT_TRUE(std::isnan(sum({kNaN, 1, 2}).value.get_double(0)));
  EXPECT_EQ(sum({3e38, 3e38, -kInf}).bound[0], kInf);
}

// What a mask of integers hides may be multiplied or not, and what it does not hide is.
TEST(Bounds, ZerosOfMasksMayBeLeftOut) {
  const auto masked_product = [](DType dtype, double second) {
    Case c;
    const NodeId seen = c(dtype, {2}, {1, second}), nothing = c(dtype, {2}, {0, 0});
    const NodeId x = c(DType::F32, {2}, {2, 3}), zeros = c(DType::F32, {2}, {0, 0});
    const NodeId mask = c.map(ElementwiseOp::ne, {seen, nothing});
    const NodeId factor =
        c.map(ElementwiseOp::neg, {c.map(ElementwiseOp::select, {mask, x, zeros})});
    const NodeId y = c(DType::F32, {2}, {1, kInf});
    return c.run(build::dot(c.graph, factor, y, {{}, {}, {0}, {0}}));
  };
  EXPECT_EQ(masked_product(DType::I32, 0).bound[0], kInf);
  EXPECT_EQ(masked_product(DType::I32, 1).bound[0], 0);
  EXPECT_EQ(masked_product(DType::I32, 1).value.get_double(0), -kInf);
  // No kernel leaves out turns because of floats.
  EXPECT_EQ(masked_product(DType::F32, 0).bound[0], 0);
  EXPECT_TRUE(std::isnan(masked_product(DType::F32, 0).value.get_double(0)));
}

TEST(Bounds, RelaxedBehindReductionsOnly) {
  Case c;
  const NodeId x = c(DType::BF16, {2}, {1.0078125, 3}), y = c(DType::BF16, {2}, {1.0078125, 5});
  const NodeId product = c.map(ElementwiseOp::mul, {x, y});
  const NodeId total = build::reduce(c.graph, Monoid::Sum, product, {0});
  c.graph.set_outputs({{total, "y", {}}});
  EXPECT_TRUE(relaxed_nodes(c.graph)[product.index]);
  // The product need not be rounded to bf16 ...
  EXPECT_GT(reference(c.graph, c.inputs)[0].bound[0], 0.04);
  c.graph.set_outputs({{total, "y", {}}, {product, "p", {}}});
  // ... unless it is also an output.
  EXPECT_FALSE(relaxed_nodes(c.graph)[product.index]);
  EXPECT_EQ(reference(c.graph, c.inputs)[1].bound[0], 0);
}

// Softmax in front of a product has approximate powers, which may be 0 below all normal numbers. In
// an output each power is what the graph says.
TEST(Bounds, SmallPowersBehindReductionsMayBeZero) {
  Case c;
  const double small = std::exp(-88.0);  // below 2^-126
  const NodeId x = c(DType::F32, {3}, {-88, -80, -kInf}), v = c(DType::F32, {3}, {4, 0, kInf});
  const NodeId power = c.map(ElementwiseOp::exp, {x});
  const Bounded sum = c.run(build::reduce(c.graph, Monoid::Sum, power, {0}));
  EXPECT_LT(sum.bound[0], std::exp(-80.0));
  const NodeId product = build::dot(c.graph, power, v, {{}, {}, {0}, {0}});
  EXPECT_TRUE(std::isnan(c.run(product).value.get_double(0)));  // 0 * inf
  c.inputs[1].set_double(2, 1);
  const Bounded dot = c.run(product);
  EXPECT_GE(dot.bound[0], 4 * small);
  EXPECT_LT(dot.bound[0], 5 * 0x1p-126);
  EXPECT_LT(c.run(power).bound[0], small / 1e4);
}

// NCCL combines in the dtype of the values, in any order, and need not keep a NaN.
TEST(Bounds, CombinationsOfDevicesAreWiderByNccl) {
  const auto bounds = [](DType dtype, const std::vector<double>& values, Monoid monoid) {
    Case c;
    const NodeId x = c(dtype, {static_cast<int64_t>(values.size())}, values);
    const NodeId all = build::reduce(c.graph, monoid, x, {0});
    c.graph.set_outputs({{all, "y", {}}});
    return std::pair{reference(c.graph, c.inputs)[0],
                     reference(c.graph, c.inputs, Precision::Standard, std::vector{all})[0]};
  };
  // 259 is rounded to 260, but 257 to 256.
  const auto [exact, rounded] = bounds(DType::BF16, {256, 1, 1, 1}, Monoid::Sum);
  EXPECT_EQ(exact.value.get_double(0), 260);
  EXPECT_EQ(exact.bound[0], 0);
  EXPECT_GE(rounded.bound[0], std::abs(rounded.value.get_double(0) - 256));
  EXPECT_LT(rounded.bound[0], 8);
  // 120,000 is no number of f16.
  const auto [fits, overflows] = bounds(DType::F16, {60000, 60000, -60000}, Monoid::Sum);
  EXPECT_TRUE(std::isfinite(fits.bound[0]));
  EXPECT_EQ(overflows.bound[0], kInf);
  EXPECT_EQ(bounds(DType::F32, {kNaN, 2}, Monoid::Max).first.bound[0], 0);
  EXPECT_EQ(bounds(DType::F32, {kNaN, 2}, Monoid::Max).second.bound[0], kInf);
  EXPECT_EQ(bounds(DType::F32, {kNaN, kNaN}, Monoid::Min).second.bound[0], 0);
  EXPECT_EQ(bounds(DType::F32, {0.0, -0.0}, Monoid::Max).first.bound[0], 0);
  EXPECT_GT(bounds(DType::F32, {0.0, -0.0}, Monoid::Max).second.bound[0], 0);
  EXPECT_EQ(bounds(DType::F32, {1, 2}, Monoid::Max).second.bound[0], 0);
}

// A math row in f32 may be off by a few ulp if outputs see it only through roundings to 16 bits.
TEST(Bounds, CoarseBeforeRoundingsOnly) {
  Case c;
  const NodeId x = c(DType::F32, {3}, {0.3, -1.25, 4}), y = c(DType::F32, {3}, {0.7, 3, -2});
  const NodeId tail = c.map(ElementwiseOp::erfc, {x});
  const NodeId product = c.map(ElementwiseOp::mul, {tail, y});
  const NodeId narrow = build::convert(c.graph, product, DType::BF16);
  const NodeId half = build::convert(c.graph, x, DType::F16);
  const NodeId formula = c.map(ElementwiseOp::silu, {half});
  c.graph.set_outputs({{narrow, "y", {}}, {formula, "z", {}}});
  EXPECT_TRUE(coarse_nodes(c.graph)[tail.index]);
  EXPECT_TRUE(coarse_nodes(c.graph)[formula.index]);  // its body is computed in f32
  // Nothing else is rounded elsewhere.
  EXPECT_FALSE(relaxed_nodes(c.graph)[tail.index]);
  EXPECT_GT(reference(c.graph, c.inputs)[0].bound[0],
            reference(c.graph, c.inputs, Precision::Strict)[0].bound[0]);
  // An output in f32 sees it, and so do a bool or a whole number that hangs on it, and a wider
  // float.
  c.graph.set_outputs({{narrow, "y", {}}, {product, "p", {}}});
  EXPECT_FALSE(coarse_nodes(c.graph)[tail.index]);
  c.graph.set_outputs({{narrow, "y", {}}, {c.map(ElementwiseOp::lt, {product, y}), "less", {}}});
  EXPECT_FALSE(coarse_nodes(c.graph)[tail.index]);
  const NodeId whole = c.map(ElementwiseOp::round_even, {product});
  c.graph.set_outputs({{build::convert(c.graph, whole, DType::BF16), "whole", {}}});
  EXPECT_FALSE(coarse_nodes(c.graph)[tail.index]);
  c.graph.set_outputs({{build::convert(c.graph, product, DType::F64), "wide", {}}});
  EXPECT_FALSE(coarse_nodes(c.graph)[tail.index]);
}

// exp may be an approximate power of two if outputs see it through roundings to 16 bits and through
// the sum of a softmax, and if it depends on a reduction.
TEST(Bounds, ApproximatePowersBeforeRoundingsOnly) {
  const auto softmax = [](int64_t rows, int64_t columns, bool own_rows, bool of_sum) {
    Case c;
    const Shape shape({rows, columns});
    std::vector<double> values;
    for (int64_t i = 0; i < rows * columns; ++i) values.push_back(static_cast<double>(i % 37) - 20);
    const NodeId x = c(DType::F32, {rows, columns}, values);
    const NodeId greatest = build::reduce(c.graph, Monoid::Max, x, {1});
    const NodeId spread = build::broadcast(c.graph, greatest, shape, {own_rows ? 0 : 1});
    const NodeId power = c.map(ElementwiseOp::exp, {c.map(ElementwiseOp::sub, {x, spread})});
    const NodeId sum = build::reduce(c.graph, Monoid::Sum, power, {1});
    const NodeId narrow = build::convert(c.graph, power, DType::BF16);
    if (of_sum)
      c.graph.set_outputs({{narrow, "y", {}}, {sum, "sum", {}}});
    else
      c.graph.set_outputs({{narrow, "y", {}}});
    return std::pair(std::move(c), power);
  };
  const auto may = [](const std::pair<Case, NodeId>& of) {
    return static_cast<bool>(approximate_powers(of.first.graph)[of.second.index]);
  };
  EXPECT_TRUE(may(softmax(2, 80, true, false)));
  EXPECT_TRUE(may(softmax(2, 80, true, true)));
  EXPECT_FALSE(may(softmax(2, 60, true, true)));    // few terms
  EXPECT_FALSE(may(softmax(80, 80, false, true)));  // the greatest of another row
  EXPECT_TRUE(may(softmax(80, 80, false, false)));

  auto [c, power] = softmax(2, 80, true, false);
  EXPECT_GT(reference(c.graph, c.inputs)[0].bound[0],
            reference(c.graph, c.inputs, Precision::Strict)[0].bound[0]);
  const NodeId narrow = c.graph.outputs()[0].node;
  c.graph.set_outputs({{narrow, "y", {}}, {power, "power", {}}});
  EXPECT_FALSE(approximate_powers(c.graph)[power.index]);
  // All machines give the same bits where nothing is reduced.
  const NodeId plain = c.map(ElementwiseOp::exp, {c.graph.inputs()[0]});
  c.graph.set_outputs({{build::convert(c.graph, plain, DType::BF16), "y", {}}});
  EXPECT_FALSE(approximate_powers(c.graph)[plain.index]);
}

// A float may be rounded elsewhere if only sums see it; an integer, a bool and what decides them
// may not.
TEST(Bounds, IntegersAndBoolsAreExactWhateverConsumesThem) {
  Case c;
  std::vector<double> values(1000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<double>(i));
  const NodeId x = c(DType::F32, {1000}, values);
  const NodeId zeros = build::broadcast_to(c.graph, build::scalar(c.graph, DType::F32, 0), {1000});
  const auto masked_sum = [&](NodeId mask) {
    const NodeId kept = c.map(ElementwiseOp::select, {mask, x, zeros});
    return c.run(build::reduce(c.graph, Monoid::Sum, kept, {0})).bound[0];
  };
  const NodeId i = build::iota(c.graph, {DType::I32, {1000}}, 0);
  const NodeId one = build::scalar(c.graph, DType::I32, 1);
  const NodeId limit = build::scalar(c.graph, DType::I32, 900);
  const double sum_alone = 999 * 0x1p-24 * 640;  // the magnitudes add up to about 637
  EXPECT_LT(masked_sum(c.map(ElementwiseOp::lt, {c.map(ElementwiseOp::sub, {i, one}), limit})),
            sum_alone);
  // x * x is a float, but the bool hangs on it: at the tie too.
  const NodeId square = c.map(ElementwiseOp::mul, {x, x});
  EXPECT_LT(masked_sum(c.map(ElementwiseOp::le, {square, square})), sum_alone);
  const NodeId rounded = c(DType::F32, {1000}, [&] {
    std::vector<double> squares;
    for (const double v : values) squares.push_back(static_cast<float>(v) * static_cast<float>(v));
    return squares;
  }());
  const NodeId tie = c.map(ElementwiseOp::le, {rounded, square});
  EXPECT_LT(masked_sum(tie), sum_alone);
  EXPECT_FALSE(relaxed_nodes(c.graph)[square.index]);
  // So it is with indices: of a maximum ...
  c.graph.set_outputs({{build::arg_reduce(c.graph, true, square, 0), "y", {}}});
  EXPECT_FALSE(relaxed_nodes(c.graph)[square.index]);
  // ... while a maximum itself is a float.
  const NodeId m = build::reduce(c.graph, Monoid::Max, square, {0});
  const NodeId scaled = c.map(ElementwiseOp::mul, {x, build::broadcast(c.graph, m, {1000}, {})});
  c.graph.set_outputs({{build::reduce(c.graph, Monoid::Sum, scaled, {0}), "y", {}}});
  EXPECT_TRUE(relaxed_nodes(c.graph)[square.index]);
  c.graph.set_outputs({{m, "y", {}}});
  EXPECT_FALSE(relaxed_nodes(c.graph)[square.index]);
}

// What errors cannot reach stays known.
TEST(Bounds, ZerosAndEqualOperandsAreCertain) {
  Case c;
  const NodeId x = c(DType::F32, {2, 1}, {0.3, 7}), zero = c(DType::F32, {1, 2}, {-0.0, 0});
  const NodeId e = c.map(ElementwiseOp::exp, {x});
  const NodeId products = build::dot(c.graph, e, zero, {{}, {}, {1}, {0}});
  const Bounded zeros = c.run(products);
  for (const double bound : zeros.bound) EXPECT_LT(bound, 0x1p-149);  // but for the sign
  const NodeId same = c.map(ElementwiseOp::div, {products, products});
  EXPECT_EQ(c.run(same).bound, std::vector<double>(4, 0));
  EXPECT_TRUE(std::isnan(c.run(same).value.get_double(0)));
  const NodeId negated = c.map(ElementwiseOp::neg, {products});
  EXPECT_EQ(c.run(c.map(ElementwiseOp::eq, {products, negated})).bound, std::vector<double>(4, 0));
  for (const auto op : {ElementwiseOp::le, ElementwiseOp::lt, ElementwiseOp::eq}) {
    const Bounded equal = c.run(c.map(op, {e, e}));
    EXPECT_EQ(equal.bound, (std::vector<double>{0, 0}));
    EXPECT_EQ(equal.value.get_int(1), op != ElementwiseOp::lt);
  }
  const Bounded bits = c.run(c.map(ElementwiseOp::bitcast, {e}, DType::F32));
  EXPECT_LT(bits.bound[1], 1e-3);
  EXPECT_EQ(c.run(c.map(ElementwiseOp::bitcast, {e}, DType::I32)).bound[1], kInf);
}

TEST(Bounds, SoftmaxIsTight) {
  Case c;
  std::vector<double> values(8 * 128);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<double>(i * i)) * 4;
  const NodeId x = c(DType::F32, {8, 128}, values);
  const auto spread = [&](NodeId r) { return build::broadcast(c.graph, r, {8, 128}, {0}); };
  const NodeId e =
      c.map(ElementwiseOp::exp,
            {c.map(ElementwiseOp::sub, {x, spread(build::reduce(c.graph, Monoid::Max, x, {1}))})});
  const Bounded y =
      c.run(c.map(ElementwiseOp::div, {e, spread(build::reduce(c.graph, Monoid::Sum, e, {1}))}));
  for (int64_t i = 0; i < y.value.numel(); ++i)
    EXPECT_LT(y.bound[static_cast<size_t>(i)], 150 * 0x1p-24 * y.value.get_double(i));
}

// compare.

TEST(Compare, ExactCountsAndDescribes) {
  HostTensor a(DType::F32, {2, 2}), b(DType::F32, {2, 2});
  EXPECT_EQ(compare(a, b).summary(), "equal");
  b.set_double(3, 0x1p-149);
  b.set_double(1, kNaN);
  a.set_double(1, -kNaN);
  const Comparison one = compare(a, b);
  EXPECT_FALSE(one.ok);
  EXPECT_EQ(one.max_ulps, 1);
  EXPECT_EQ(one.summary(),
            "1 of 4 elements differ, by up to 1 ulp; worst at [1, 1]: got 0, expected "
            "1.401298464324817e-45");
  EXPECT_FALSE(compare(a, HostTensor(DType::F32, {4})).ok);
  EXPECT_EQ(compare(a, HostTensor(DType::F64, {2, 2})).summary(),
            "got f32[2, 2], expected f64[2, 2]");
}

TEST(Compare, UlpDistances) {
  const auto bits = [](float x) { return uint64_t{std::bit_cast<uint32_t>(x)}; };
  EXPECT_EQ(ulp_distance(DType::F32, bits(1), bits(std::nextafter(1.0F, 2.0F))), 1);
  EXPECT_EQ(ulp_distance(DType::F32, bits(0), bits(-0.0F)), 0);
  EXPECT_EQ(ulp_distance(DType::F32, bits(-0x1p-149F), bits(0x1p-149F)), 2);
  EXPECT_EQ(ulp_distance(DType::BF16, 0x3f80, 0x3f83), 3);
}

TEST(Compare, BoundedFindsTheWorst) {
  HostTensor got(DType::F32, {2, 2}), value(DType::F64, {2, 2});
  value.set_double(0, 40);
  Bounded expected{value, {1, 2, 0, kInf}};
  got.set_double(0, 40.25);
  got.set_double(1, 1);
  got.set_double(3, kNaN);
  const Comparison within = compare(got, expected);
  EXPECT_TRUE(within.ok);
  EXPECT_EQ(within.coverage.unjudged, 1);
  EXPECT_EQ(within.summary(),
            "max error 0.5 of its bound at [0, 1]: got 1, expected 0 +- 2; 1 of 4 elements not "
            "judged");
  got.set_double(2, -0.0);  // a bound of 0 means the bits
  EXPECT_FALSE(compare(got, expected).ok);
}

TEST(Compare, WideBoundsJudgeNothing) {
  HostTensor got(DType::F32, {5}), value(DType::F64, {5});
  const double values[] = {10, 1, 1, kInf, kNaN};
  for (int64_t i = 0; i < 5; ++i) {
    got.set_double(i, values[i]);
    value.set_double(i, values[i]);
  }
  // Up to a tenth of the greatest magnitude, which is 10.
  const Comparison some = compare(got, Bounded{value, {1, 1.001, kInf, 0, 0}});
  EXPECT_TRUE(some.ok);
  EXPECT_EQ(some.coverage.judged, 1);
  EXPECT_EQ(some.coverage.unjudged, 2);
  EXPECT_EQ(some.coverage.nonfinite, 2);
  EXPECT_DOUBLE_EQ(some.coverage.share(), 1.0 / 3);
  EXPECT_FALSE(some.coverage.vacuous());

  const Comparison none = compare(got, Bounded{value, {2, 2, kInf, kInf, 0}});
  EXPECT_TRUE(none.ok);
  EXPECT_TRUE(none.coverage.vacuous());
  EXPECT_EQ(none.coverage.share(), 0);
  EXPECT_EQ(none.summary(), "no element was judged: 4 of 5 elements have a bound that is too wide");

  // What lies beyond a wide bound is wrong all the same.
  got.set_double(1, 4);
  const Comparison wrong = compare(got, Bounded{value, {2, 2, kInf, kInf, 0}});
  EXPECT_FALSE(wrong.ok);
  EXPECT_EQ(wrong.max_ratio, 1.5);
}

TEST(Compare, ZerosOfEitherSignAreJudged) {
  for (const DType dtype : {DType::F64, DType::F32, DType::BF16, DType::F16}) {
    const HostTensor got(dtype, {1});
    const double smallest = std::numeric_limits<double>::denorm_min();
    EXPECT_EQ(compare(got, Bounded{HostTensor(DType::F64, {1}), {smallest}}).coverage.judged, 1);
  }
}

TEST(Compare, UnknownIntegersAreNotJudged) {
  const HostTensor got(DType::I32, {3});
  const Comparison c = compare(got, Bounded{got, {0, kInf, 0}});
  EXPECT_EQ(c.coverage.judged, 2);
  EXPECT_EQ(c.coverage.unjudged, 1);
}

TEST(Check, ChoosesTheRulePerOutput) {
  Case c;
  const NodeId x = c(DType::F32, {2}, {1, 2});
  const NodeId moved = build::reverse(c.graph, c.map(ElementwiseOp::mul, {x, x}), {0});
  const NodeId math = c.map(ElementwiseOp::add, {x, c.map(ElementwiseOp::gelu, {x})});
  const NodeId sum = build::reduce(c.graph, Monoid::Sum, x, {0});
  const NodeId bits = c.map(ElementwiseOp::bitcast, {x}, DType::I32);
  EXPECT_TRUE(is_exact(c.graph, moved));
  EXPECT_FALSE(is_exact(c.graph, math));
  EXPECT_TRUE(is_exact(c.graph, c.map(ElementwiseOp::relu, {x})));
  EXPECT_FALSE(is_exact(c.graph, c.map(ElementwiseOp::neg, {sum})));
  EXPECT_FALSE(is_exact(c.graph, bits));
  c.graph.set_outputs({{moved, "a", {}}, {math, "b", {}}, {sum, "c", {}}, {bits, "d", {}}});
  auto outputs = interpret(c.graph, c.inputs);
  EXPECT_TRUE(check_outputs(c.graph, c.inputs, outputs).ok);
  outputs[0].set_double(0, std::nextafter(4.0F, 5.0F));
  const CheckResult wrong = check_outputs(c.graph, c.inputs, outputs);
  EXPECT_FALSE(wrong.ok);
  EXPECT_FALSE(wrong.outputs[0].comparison.ok);
  EXPECT_TRUE(wrong.outputs[1].comparison.ok);
}

TEST(Check, CountsWhatItJudged) {
  Case c;
  const NodeId x = c(DType::F32, {2}, {1, 2});
  const NodeId e = c.map(ElementwiseOp::exp, {x});
  const NodeId bits = c.map(ElementwiseOp::bitcast, {e}, DType::I32);
  c.graph.set_outputs({{x, "x", {}}, {e, "e", {}}, {bits, "bits", {}}});
  auto outputs = interpret(c.graph, c.inputs);
  const CheckResult check = check_outputs(c.graph, c.inputs, outputs);
  EXPECT_TRUE(check.ok);
  EXPECT_EQ(check.coverage().judged, 4);
  EXPECT_EQ(check.coverage().unjudged, 2);
  EXPECT_TRUE(check.outputs[2].comparison.coverage.vacuous());
  EXPECT_NE(check.summary().find("output 'bits' (bound): no element was judged"), std::string::npos)
      << check.summary();
}

}  // namespace
}  // namespace braze
