// The bodies of math rows over machine rows, against libm. Tests below tests/math measure them on
// every input; this one knows that the table has the right body in every row.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "ir/graph/coarse.h"
#include "ir/graph/interpret.h"
#include "ir/ops/elementwise.h"
#include "ir/ops/machine_semantics.h"
#include "ir/support/text.h"
#include "tests/source_path.h"

namespace braze {
namespace {

// Computes machine rows on element bits; the ids of its scalars number `bits`.
class ValueEmitter : public ScalarEmitter {
 public:
  std::vector<uint64_t> bits;

  Scalar constant(DType dtype, uint64_t value) override {
    bits.push_back(value);
    return {this, static_cast<uint32_t>(bits.size() - 1), dtype};
  }
  Scalar apply(ElementwiseOp op, std::span<const Scalar> operands, DType result) override {
    uint64_t x[3] = {};
    for (size_t i = 0; i < operands.size(); ++i) x[i] = bits[operands[i].id()];
    return constant(result,
                    evaluate_machine(op, operands.back().dtype(), result, x[0], x[1], x[2]));
  }
};

TEST(Bodies, OfMathRowsAreNearLibm) {
  const double points[] = {-1e30, -700.5, -88.0, -10.0, -1.5,     -0.75,     -1e-3, -1e-20, -0.0,
                           0.0,   1e-20,  1e-3,  0.5,   0.7071,   1.0,       1.25,  3.0,    20.0,
                           87.3,  700.5,  1e6,   1e30,  INFINITY, -INFINITY, NAN,   -1.0,   -3.0};
  for (size_t i = 0; i < elementwise_table().size(); ++i) {
    const auto op = static_cast<ElementwiseOp>(i);
    if (info(op).op_class != OpClass::Math) continue;
    for (const DType dtype : {DType::F32, DType::F64}) {
      for (size_t pair = 0; pair < std::size(points) * std::size(points); ++pair) {
        const double point = points[pair % std::size(points)];
        const double second = points[pair / std::size(points)];
        if (info(op).arity == 1 && pair >= std::size(points)) break;
        const auto what = [&] {
          return fmt::format("{} {} of {} (and {})", info(op).name, name(dtype), point, second);
        };
        ValueEmitter emitter;
        const Scalar x = emitter.constant(dtype, constant_bits(dtype, point));
        const Scalar y = emitter.constant(dtype, constant_bits(dtype, second));
        const Scalar r = info(op).body(x, y, {});
        ASSERT_EQ(r.dtype(), dtype);
        const double got = bits_to_double(dtype, emitter.bits[r.id()]);
        const double libm = evaluate_math(op, bits_to_double(dtype, emitter.bits[x.id()]),
                                          bits_to_double(dtype, emitter.bits[y.id()]));
        const double expected = bits_to_double(dtype, constant_bits(dtype, libm));
        if (std::isnan(expected)) {
          EXPECT_TRUE(std::isnan(got)) << what();
          continue;
        }
        if (expected == 0) {
          EXPECT_EQ(std::signbit(got), std::signbit(expected)) << what();
        }
        if (got == expected) continue;
        const double ulp = std::ldexp(std::abs(expected), dtype == DType::F32 ? -23 : -52) +
                           (dtype == DType::F32 ? 0x1p-149 : 0x1p-1074);
        EXPECT_LE(std::abs(got - expected), (dtype == DType::F32 ? 1 : 4) * ulp) << what();
      }
    }
  }
}

// Where runs over all inputs (tests/math/RESULTS.md) found the largest errors, now or once.
TEST(Bodies, InF32AreWithinOneUlpAtTheWorstInputs) {
  using enum ElementwiseOp;
  const std::pair<ElementwiseOp, uint32_t> worst[] = {
      {exp, 0x429ed938},  {exp2, 0xc2fcfe35},    {expm1, 0x3eb17e5d}, {log, 0x3f3d535a},
      {log2, 0x3faeb4b9}, {log1p, 0x3ef838f3},   {tanh, 0x3e806c7c},  {erf, 0x3f7f91d2},
      {erfc, 0xbc648575}, {sigmoid, 0xc0a65f2e}, {sin, 0x3f7a371c},   {cos, 0x750aedd6},
      {erfc, 0x3f135aee}, {erfc, 0x3fc74a12},
  };
  for (const auto& [op, bits] : worst) {
    ValueEmitter emitter;
    const Scalar r = info(op).body(emitter.constant(DType::F32, bits), {}, {});
    const double got = bits_to_double(DType::F32, emitter.bits[r.id()]);
    const double exact = evaluate_math(op, std::bit_cast<float>(bits));  // f64: 2^-29 ulp away
    int exponent = 0;
    std::frexp(exact, &exponent);
    EXPECT_LE(std::abs(got - exact), std::ldexp(1.0, std::max(exponent - 24, -149)))
        << info(op).name << " of " << std::bit_cast<float>(bits);
  }
}

// The number of numbers between two of one sign; in ulp of 1 if both are closer to 0 than 1.
int64_t distance(DType dtype, uint64_t a, uint64_t b, bool of_one) {
  const double x = bits_to_double(dtype, a), y = bits_to_double(dtype, b);
  if (x == y || (std::isnan(x) && std::isnan(y))) return 0;
  if (of_one && std::abs(x) < 1 && std::abs(y) < 1) {
    const int fraction = kDTypeInfos[static_cast<size_t>(dtype)].fraction;
    return static_cast<int64_t>(std::ceil(std::ldexp(std::abs(x - y), fraction)));
  }
  const uint64_t sign = uint64_t{1} << (8 * size_of(dtype) - 1);
  if ((a ^ b) & sign || std::isnan(x) || std::isnan(y)) return INT64_MAX;
  return std::abs(static_cast<int64_t>(a) - static_cast<int64_t>(b));
}

// golden_formulas.txt has correctly rounded values of mpmath. formulas.h promises these errors.
TEST(Bodies, OfLongFormulasAreWithinTheirErrors) {
  std::ifstream file(test::source_path("tests/ops/golden_formulas.txt"));
  int lines = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    ++lines;
    std::istringstream in(line);
    std::string name_text, dtype_text, word;
    in >> name_text >> dtype_text;
    const ElementwiseOp op = parse_elementwise(name_text).value();
    const DType dtype = parse_dtype(dtype_text).value();
    std::vector<HostTensor> operands;
    while (in >> word && word != "->") {
      operands.emplace_back(dtype, std::vector<int64_t>{});
      operands.back().set_bits(0, std::stoull(word, nullptr, 16));
    }
    in >> word;
    std::vector<const HostTensor*> pointers;
    for (const HostTensor& operand : operands) pointers.push_back(&operand);
    const uint64_t got = evaluate_map(op, pointers, dtype).get_bits(0);
    const bool is_gamma = op == ElementwiseOp::lgamma || op == ElementwiseOp::digamma;
    const int64_t allowed = is_half(dtype) ? 1 : is_gamma ? 6 : 2;
    EXPECT_LE(distance(dtype, got, std::stoull(word, nullptr, 16), is_gamma), allowed)
        << line << " gave " << bits_to_double(dtype, got);
  }
  EXPECT_GT(lines, 1000);
}

// Every 10007th number, and those where runs over all of them found the largest errors.
TEST(Bodies, CoarseOnesAreWithinTheirError) {
  std::vector<uint32_t> inputs = {0x80000000, 0x7f800000, 0xff800000, 0x7fc00000,
                                  0x40000111, 0xb9ddd004, 0x3f887217};
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 10007)
    inputs.push_back(static_cast<uint32_t>(bits));
  int rows = 0;
  for (size_t i = 0; i < elementwise_table().size(); ++i) {
    const auto op = static_cast<ElementwiseOp>(i);
    if (!has_coarse_body(op)) continue;
    ++rows;
    for (const uint32_t bits : inputs) {
      ValueEmitter emitter;
      const Scalar r = coarse_body(op, emitter.constant(DType::F32, bits));
      const double got = bits_to_double(DType::F32, emitter.bits[r.id()]);
      const double exact = evaluate_math(op, std::bit_cast<float>(bits));
      if (std::isnan(exact)) {
        ASSERT_TRUE(std::isnan(got)) << info(op).name << " of " << std::bit_cast<float>(bits);
        continue;
      }
      ASSERT_LE(std::abs(got - exact), std::max(0x1p-21 * std::abs(exact), 0x1p-147))
          << info(op).name << " of " << std::bit_cast<float>(bits);
    }
  }
  EXPECT_GE(rows, 3);
}

TEST(Bodies, ShortOnesAreWithinTheirError) {
  std::vector<uint32_t> inputs = {0x00000000, 0x80000000, 0x7f800000,
                                  0xff800000, 0x7fc00000, 0xc11f4ffa};
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 10007)
    inputs.push_back(static_cast<uint32_t>(bits));
  // The numbers of ordinary size, and those with subnormal results.
  for (float x = -16; x < 16; x += 0.00037F) inputs.push_back(std::bit_cast<uint32_t>(x));
  for (uint32_t bits = 0xc1500000; bits < 0xc1680000; bits += 97) inputs.push_back(bits);
  int rows = 0;
  for (size_t i = 0; i < elementwise_table().size(); ++i) {
    const auto op = static_cast<ElementwiseOp>(i);
    if (!has_short_body(op, DType::F32)) continue;
    ++rows;
    for (const uint32_t bits : inputs) {
      const float x = std::bit_cast<float>(bits);
      ValueEmitter emitter;
      const Scalar r = short_body(op, emitter.constant(DType::F32, bits));
      const double got = bits_to_double(DType::F32, emitter.bits[r.id()]);
      HostTensor wide(DType::F64, {});
      wide.set_double(0, x);
      const std::vector<const HostTensor*> operands = {&wide};
      const double exact = evaluate_map(op, operands, DType::F64).get_double(0);
      if (std::isnan(exact)) {
        ASSERT_TRUE(std::isnan(got)) << info(op).name << " of " << x;
        continue;
      }
      ASSERT_EQ(std::signbit(got), std::signbit(exact)) << info(op).name << " of " << x;
      if (got == exact) continue;  // infinities
      ASSERT_LE(std::abs(got - exact), std::max(0x1p-21 * std::abs(exact), 0x1p-147))
          << info(op).name << " of " << x;
    }
  }
  EXPECT_GE(rows, 1);
  EXPECT_FALSE(has_short_body(ElementwiseOp::gelu, DType::F64));
  EXPECT_FALSE(has_short_body(ElementwiseOp::gelu, DType::BF16));
}

}  // namespace
}  // namespace braze
