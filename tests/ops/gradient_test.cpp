// The gradient of every differentiable row against central differences in f64, and gradients far
// from zero, where careless formulas give NaN.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "ir/graph/interpret.h"
#include "ir/ops/elementwise.h"
#include "ir/ops/machine_semantics.h"

namespace braze {
namespace {

// Computes what it is given: a Scalar is a value and its derivative along one direction.
class DualEmitter : public ScalarEmitter {
 public:
  Scalar variable(DType dtype, double value, double tangent) {
    return push(dtype, braze::constant_bits(dtype, value), tangent);
  }
  double value(const Scalar& x) const { return bits_to_double(x.dtype(), bits_[x.id()]); }
  double tangent(const Scalar& x) const { return tangents_[x.id()]; }

  Scalar constant(DType dtype, uint64_t bits) override { return push(dtype, bits, 0); }

  Scalar apply(ElementwiseOp op, std::span<const Scalar> operands, DType result) override {
    const ElementwiseInfo& row = info(op);
    Scalar x = operands[0], y, z;
    if (operands.size() > 1) y = operands[1];
    if (operands.size() > 2) z = operands[2];
    if (row.op_class == OpClass::Formula && row.through_body) return row.body(x, y, z);

    Scalar r;
    if (row.op_class == OpClass::Machine) {
      const auto bits = [&](const Scalar& s) { return s ? bits_[s.id()] : 0; };
      r = push(result,
               evaluate_machine(op, operands.back().dtype(), result, bits(x), bits(y), bits(z)), 0);
    } else if (row.op_class == OpClass::Math) {
      r = variable(result, evaluate_math(op, value(x), y ? value(y) : 0), 0);
    } else {
      r = variable(result, value(row.body(x, y, z)), 0);
    }
    bool constant = true;
    for (const Scalar& operand : operands) constant = constant && tangent(operand) == 0;
    if (row.gradient && !constant) {
      const Scalar one = variable(result, 1, 0);
      // Constants from here on: gradients of gradients are another matter.
      const auto frozen = [&](const Scalar& s) {
        return s ? push(s.dtype(), bits_[s.id()], 0) : s;
      };
      const Gradients partials = row.gradient(one, r, frozen(x), frozen(y), frozen(z));
      double sum = 0;
      for (size_t i = 0; i < operands.size(); ++i)
        if (partials.of[i] && tangent(operands[i]) != 0)
          sum += value(partials.of[i]) * tangent(operands[i]);
      tangents_[r.id()] = sum;
    }
    return r;
  }

 private:
  Scalar push(DType dtype, uint64_t bits, double tangent) {
    bits_.push_back(bits);
    tangents_.push_back(tangent);
    return {this, static_cast<uint32_t>(bits_.size() - 1), dtype};
  }

  std::vector<uint64_t> bits_;
  std::vector<double> tangents_;
};

struct Dual {
  double value, derivative;
};

// The row at `point` and its derivative by operand `along`.
Dual evaluate_row(ElementwiseOp op, DType dtype, const std::vector<double>& point, size_t along) {
  DualEmitter emitter;
  std::vector<Scalar> operands;
  for (size_t i = 0; i < point.size(); ++i) {
    const bool condition = op == ElementwiseOp::select && i == 0;
    operands.push_back(
        emitter.variable(condition ? DType::Bool : dtype, point[i], i == along ? 1 : 0));
  }
  const Scalar result = emit_elementwise(op, operands);
  return {emitter.value(result), emitter.tangent(result)};
}

bool is_differentiable(const ElementwiseInfo& row) {
  return row.result == ResultRule::Same && row.types.contains(DType::F64);
}

TEST(Gradients, AgreeWithCentralDifferences) {
  const double values[] = {-2.3, -1.37, -0.61, -0.35, 0.17, 0.42, 0.83, 1.23, 1.9, 2.6, 3.4};
  for (size_t i = 0; i < elementwise_table().size(); ++i) {
    const auto op = static_cast<ElementwiseOp>(i);
    const ElementwiseInfo& row = info(op);
    if (!is_differentiable(row)) continue;
    size_t checked = 0;
    for (size_t a = 0; a < std::size(values); ++a) {
      const std::vector<double> all = {values[a], values[(a + 2) % std::size(values)],
                                       values[(a + 3) % std::size(values)]};
      std::vector<double> point(all.begin(), all.begin() + row.arity);
      const bool is_select = op == ElementwiseOp::select;
      if (is_select) point[0] = a % 2 ? 1 : 0;
      for (size_t along = is_select ? 1 : 0; along < point.size(); ++along) {
        const double h = 1e-5;
        const auto shifted = [&](double by) {
          std::vector<double> there = point;
          there[along] += by;
          return evaluate_row(op, DType::F64, there, along).value;
        };
        const double numeric = (shifted(h) - shifted(-h)) / (2 * h);
        if (std::isnan(numeric)) continue;  // not within the domain
        const double analytic = evaluate_row(op, DType::F64, point, along).derivative;
        EXPECT_NEAR(analytic, numeric, 1e-7 * (1 + std::abs(numeric)))
            << row.name << " at " << point[0] << " by operand " << along;
        ++checked;
      }
    }
    EXPECT_GE(checked, 4u) << row.name;
  }
}

TEST(Gradients, AreFiniteFarFromZero) {
  int checked = 0;
  for (size_t i = 0; i < elementwise_table().size(); ++i) {
    const auto op = static_cast<ElementwiseOp>(i);
    const ElementwiseInfo& row = info(op);
    if (!is_differentiable(row) || row.arity > 2) continue;
    for (const double x : {-1e4, -100.0, 100.0, 1e4}) {
      std::vector<double> point = {x};
      if (row.arity == 2) point.push_back(0.25);
      const Dual result = evaluate_row(op, DType::F32, point, 0);
      if (!std::isfinite(result.value)) continue;
      EXPECT_TRUE(std::isfinite(result.derivative)) << row.name << " at " << x;
      ++checked;
    }
  }
  EXPECT_GT(checked, 100);
}

TEST(Gradients, OfMinAndMaxAreSharedAtTies) {
  for (const auto op : {ElementwiseOp::min, ElementwiseOp::max})
    for (const size_t along : {0u, 1u})
      EXPECT_EQ(evaluate_row(op, DType::F64, {2, 2}, along).derivative, 0.5);
  EXPECT_EQ(evaluate_row(ElementwiseOp::elu, DType::F64, {0, 1}, 0).derivative, 1);
  EXPECT_EQ(evaluate_row(ElementwiseOp::relu, DType::F64, {0}, 0).derivative, 0);
}

// As PyTorch has them: a constant power has no slope, and 0^y none by y where 0^y is 0 or 1.
TEST(Gradients, OfPowAreFiniteAtZero) {
  struct Case {
    double x, y, by_x, by_y;
  };
  const double inf = INFINITY, nan = NAN;
  const Case cases[] = {
      {0, 0, 0, 0},     {0, 1, 1, 0},           {0, 2, 0, 0},
      {0, 0.5, inf, 0}, {0, -1, -inf, -inf},    {-2, 3, 12, nan},
      {-2, 0, 0, nan},  {2, 0, 0, std::log(2)}, {3, 2, 6, 9 * std::log(3)},
      {nan, 0, 0, nan}, {1, 5, 5, 0},
  };
  for (const Case& c : cases) {
    const auto check = [&](size_t along, double expected) {
      const double got = evaluate_row(ElementwiseOp::pow, DType::F64, {c.x, c.y}, along).derivative;
      EXPECT_TRUE(got == expected || std::abs(got - expected) < 1e-12 ||
                  (std::isnan(got) && std::isnan(expected)))
          << got << " instead of " << expected << " at " << c.x << "^" << c.y << " by " << along;
    };
    check(0, c.by_x);
    check(1, c.by_y);
  }
}

}  // namespace
}  // namespace braze
