// No product of the math bodies takes or gives a subnormal number: that costs x86 processors a
// microcode assist, some ten times the body's own time. The bodies run on arguments of ordinary
// size, and every row that multiplies is watched.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ir/graph/coarse.h"
#include "ir/ops/elementwise.h"
#include "ir/ops/machine_semantics.h"

namespace braze {
namespace {

bool is_subnormal(DType dtype, double value) {
  return value != 0 && std::abs(value) < (dtype == DType::F64 ? 0x1p-1022 : 0x1p-126);
}

bool multiplies(ElementwiseOp op) {
  return op == ElementwiseOp::mul || op == ElementwiseOp::fma || op == ElementwiseOp::div ||
         op == ElementwiseOp::inverse;
}

/// Computes on one number and counts the rows that multiply and meet a subnormal one.
class Watched : public ScalarEmitter {
 public:
  int met = 0;

  Scalar number(DType dtype, double value) {
    return constant(dtype, braze::constant_bits(dtype, value));
  }
  uint64_t bits(const Scalar& x) const { return values_[x.id()]; }

  Scalar constant(DType dtype, uint64_t value) override {
    values_.push_back(value);
    return {this, static_cast<uint32_t>(values_.size() - 1), dtype};
  }

  Scalar apply(ElementwiseOp op, std::span<const Scalar> operands, DType result) override {
    const DType dtype = operands.back().dtype();
    uint64_t in[3] = {};
    for (size_t i = 0; i < operands.size(); ++i) in[i] = bits(operands[i]);
    const uint64_t out = machine_function(op, dtype, result)(in[0], in[1], in[2]);
    if (multiplies(op) && is_floating(dtype)) met += meets_subnormal(op, dtype, operands, out);
    return constant(result, out);
  }

 private:
  bool meets_subnormal(ElementwiseOp op, DType dtype, std::span<const Scalar> operands,
                       uint64_t out) const {
    const double value = bits_to_double(dtype, out);
    bool has_zero = false;
    for (const Scalar& operand : operands) {
      const double x = bits_to_double(dtype, bits(operand));
      if (is_subnormal(dtype, x)) return true;
      has_zero |= x == 0;
    }
    // A product of other numbers that is 0 has underflowed.
    return is_subnormal(dtype, value) || (op == ElementwiseOp::mul && value == 0 && !has_zero);
  }

  std::vector<uint64_t> values_;
};

/// Numbers of ordinary size, and special ones.
std::vector<double> arguments(double limit) {
  std::vector<double> out = {std::numeric_limits<double>::infinity(),
                             -std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN(), 0.0, -0.0};
  for (int i = -4000; i <= 4000; ++i) out.push_back(limit * i / 4000);
  return out;
}

constexpr ElementwiseOp kRows[] = {
    ElementwiseOp::exp,  ElementwiseOp::exp2, ElementwiseOp::expm1,   ElementwiseOp::log,
    ElementwiseOp::log2, ElementwiseOp::tanh, ElementwiseOp::sigmoid, ElementwiseOp::log1p,
    ElementwiseOp::erf,  ElementwiseOp::erfc, ElementwiseOp::sin,     ElementwiseOp::cos};

class Underflow : public ::testing::TestWithParam<ElementwiseOp> {};

TEST_P(Underflow, NoProductMeetsSubnormalNumbers) {
  for (const auto& [dtype, limit] : {std::pair(DType::F32, 200.0), std::pair(DType::F64, 1200.0)}) {
    int subnormal_results = 0;
    for (const double x : arguments(limit)) {
      Watched watched;
      const Scalar y = info(GetParam()).body(watched.number(dtype, x), {}, {});
      EXPECT_EQ(watched.met, 0) << name(GetParam()) << " of " << x << " in " << name(dtype);
      subnormal_results += is_subnormal(dtype, bits_to_double(dtype, watched.bits(y)));
    }
    // The arguments reach what this is about.
    if (GetParam() == ElementwiseOp::exp || GetParam() == ElementwiseOp::sigmoid) {
      EXPECT_GT(subnormal_results, 50);
    }
  }
}

TEST_P(Underflow, NoProductForF16MeetsSubnormalNumbers) {
  for (const double x : arguments(200.0)) {
    Watched watched;
    info(GetParam()).half_body(watched.number(DType::F32, x), {}, DType::F16);
    EXPECT_EQ(watched.met, 0) << name(GetParam()) << " of " << x;
  }
}

TEST(Underflow, NoProductOfAShortBodyMeetsSubnormalNumbers) {
  for (const double x : arguments(200.0)) {
    Watched watched;
    const Scalar y = short_body(ElementwiseOp::gelu, watched.number(DType::F32, x));
    EXPECT_EQ(watched.met, 0) << x;
    EXPECT_EQ(y.dtype(), DType::F32);
  }
}

// Softplus takes log1p of numbers as small as there are.
TEST(Underflow, Log1pOfTinyNumbers) {
  for (const double x : {1e-15, 1e-19, 1e-25, -1e-30, 1e-37, 1e-40, -1e-44}) {
    Watched watched;
    info(ElementwiseOp::log1p).body(watched.number(DType::F32, x), {}, {});
    EXPECT_EQ(watched.met, 0) << x;
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, Underflow, ::testing::ValuesIn(kRows),
                         [](const auto& row) { return std::string(name(row.param)); });

}  // namespace
}  // namespace braze
