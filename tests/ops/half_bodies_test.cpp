// The bodies for 16-bit floats, on all 65,536 numbers of both types, against the interpreter, which
// rounds the result of f64 once. The approximate rows take every error that they are allowed, so
// that no machine's approximation can make a difference.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ir/graph/interpret.h"
#include "ir/ops/elementwise.h"
#include "ir/ops/machine_semantics.h"

namespace braze {
namespace {

constexpr int64_t kNumbers = 65536;

bool is_exp2(ElementwiseOp op) { return op == ElementwiseOp::approx_exp2; }
bool is_approximate(ElementwiseOp op) { return is_exp2(op) || op == ElementwiseOp::approx_inverse; }

float as_float(uint64_t bits) { return static_cast<float>(bits_to_double(DType::F32, bits)); }

/// Where the rows are exact on every machine.
bool is_exact(ElementwiseOp op, float x) {
  int exponent;
  return is_exp2(op) ? std::abs(x) < 0x1p-25f : std::abs(std::frexp(x, &exponent)) == 0.5f;
}

/// Applies rows to all numbers at once, approximate ones with an error.
class AllNumbers : public ScalarEmitter {
 public:
  /// Relative errors.
  AllNumbers(double exp2_error, double inverse_error)
      : exp2_error_(exp2_error), inverse_error_(inverse_error) {}

  bool approximates = false;

  Scalar numbers(const HostTensor& x) {
    std::vector<uint64_t> all(kNumbers);
    for (int64_t i = 0; i < kNumbers; ++i) all[i] = x.get_bits(i);
    return hold(std::move(all), x.dtype());
  }
  const std::vector<uint64_t>& bits(const Scalar& x) const { return values_[x.id()]; }

  Scalar constant(DType dtype, uint64_t value) override { return hold({value}, dtype); }
  Scalar apply(ElementwiseOp op, std::span<const Scalar> operands, DType result) override {
    const MachineFunction row = machine_function(op, operands.back().dtype(), result);
    const uint64_t none = 0;
    const uint64_t* first[3] = {&none, &none, &none};
    int64_t step[3] = {};  // 0 for constants
    for (size_t k = 0; k < operands.size(); ++k) {
      first[k] = bits(operands[k]).data();
      step[k] = bits(operands[k]).size() == 1 ? 0 : 1;
    }
    std::vector<uint64_t> out(kNumbers);
    uint64_t* result_bits = out.data();
    for (int64_t i = 0; i < kNumbers; ++i)
      result_bits[i] = row(first[0][i * step[0]], first[1][i * step[1]], first[2][i * step[2]]);
    if (is_approximate(op))
      for (int64_t i = 0; i < kNumbers; ++i)
        result_bits[i] = perturbed(op, first[0][i * step[0]], result_bits[i]);
    approximates |= is_approximate(op);
    return hold(std::move(out), result);
  }

 private:
  Scalar hold(std::vector<uint64_t> value, DType dtype) {
    values_.push_back(std::move(value));
    return {this, static_cast<uint32_t>(values_.size() - 1), dtype};
  }

  uint64_t perturbed(ElementwiseOp op, uint64_t x, uint64_t y) const {
    if (is_exact(op, as_float(x)) || !std::isfinite(as_float(y))) return y;
    const double exact = is_exp2(op) ? std::exp2(double{as_float(x)}) : 1 / double{as_float(x)};
    const double error = is_exp2(op) ? exp2_error_ : inverse_error_;
    return as_float(y) == 0 ? y : constant_bits(DType::F32, exact * (1 + error));
  }

  double exp2_error_, inverse_error_;
  std::vector<std::vector<uint64_t>> values_;
};

/// All numbers, `stride` apart: an odd stride visits each of them, 0 only the `first`.
HostTensor all_numbers(DType dtype, int64_t stride, int64_t first = 0) {
  HostTensor x(dtype, {kNumbers});
  for (int64_t i = 0; i < kNumbers; ++i)
    x.set_bits(i, static_cast<uint64_t>((first + i * stride) % kNumbers));
  return x;
}

using Operands = std::vector<HostTensor>;

/// What a row is tried on: every number, and as second operand some that are often there and every
/// number in several orders.
std::vector<Operands> operands_of(const ElementwiseInfo& row, DType dtype) {
  const HostTensor x = all_numbers(dtype, 1);
  if (row.arity == 1) return {{x}};
  std::vector<Operands> out;
  for (const double y : {2.0, 3.0, 0.5, -0.5, -1.0, -2.0, 1.5, 0.3333, 10.0})
    out.push_back({x, all_numbers(dtype, 0, static_cast<int64_t>(constant_bits(dtype, y)))});
  for (const int64_t stride : {3, 40503, 25173}) out.push_back({x, all_numbers(dtype, stride)});
  return out;
}

/// The rounded results of the body, and whether it approximates.
std::pair<std::vector<uint64_t>, bool> run(ElementwiseOp op, const Operands& operands,
                                           double exp2_error, double inverse_error) {
  AllNumbers emitter(exp2_error, inverse_error);
  const DType dtype = operands[0].dtype();
  const Scalar x = convert(emitter.numbers(operands.front()), DType::F32);
  const Scalar y = convert(emitter.numbers(operands.back()), DType::F32);
  const Scalar result = convert(info(op).half_body(x, y, dtype), dtype);
  return {emitter.bits(result), emitter.approximates};
}

void expect_rounded(ElementwiseOp op, const Operands& operands, const std::vector<uint64_t>& got) {
  const DType dtype = operands[0].dtype();
  std::vector<const HostTensor*> pointers;
  for (const HostTensor& operand : operands) pointers.push_back(&operand);
  const HostTensor expected = evaluate_map(op, pointers, dtype);
  int64_t wrong = 0;
  for (int64_t i = 0; i < kNumbers; ++i) {
    const double a = bits_to_double(dtype, got[i]), b = expected.get_double(i);
    if (got[i] == expected.get_bits(i) || (std::isnan(a) && std::isnan(b))) continue;
    if (++wrong <= 10)
      ADD_FAILURE() << info(op).name << " " << name(dtype) << " of "
                    << operands.front().get_double(i) << " (and " << operands.back().get_double(i)
                    << ") is " << a << ", not " << b;
  }
  EXPECT_EQ(wrong, 0) << info(op).name << " " << name(dtype);
}

class HalfBodies : public ::testing::TestWithParam<DType> {};

TEST_P(HalfBodies, RoundCorrectly) {
  int rows = 0;
  for (size_t i = 0; i < elementwise_table().size(); ++i) {
    const auto op = static_cast<ElementwiseOp>(i);
    if (!has_half_body(op, GetParam())) continue;
    ++rows;
    for (const Operands& operands : operands_of(info(op), GetParam())) {
      const auto [exact, approximates] = run(op, operands, 0, 0);
      expect_rounded(op, operands, exact);
      if (!approximates) continue;
      for (const double exp2_error : {-0x1p-22, 0x1p-22})
        for (const double inverse_error : {-0x1p-23, 0x1p-23})
          expect_rounded(op, operands, run(op, operands, exp2_error, inverse_error).first);
    }
  }
  EXPECT_GE(rows, 13);
}

INSTANTIATE_TEST_SUITE_P(Types, HalfBodies, ::testing::Values(DType::F16, DType::BF16),
                         [](const auto& dtype) { return std::string(name(dtype.param)); });

}  // namespace
}  // namespace braze
