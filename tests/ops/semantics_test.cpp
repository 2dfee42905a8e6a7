// Machine rows where they are special: wrapping, division by zero, shifts beyond the width,
// conversions out of range, NaN, infinities and signed zeros, on all dtypes.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <set>

#include "ir/ops/elementwise.h"
#include "ir/ops/machine_semantics.h"
#include "ir/ops/monoid.h"
#include "ir/values/half.h"

namespace braze {
namespace {

using enum ElementwiseOp;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

constexpr DType kFloats[] = {DType::F16, DType::BF16, DType::F32, DType::F64};

// Rows on floats, given and checked as doubles.
double on_floats(ElementwiseOp op, DType dtype, double x, double y = 0, double z = 0) {
  const DType result = result_dtype(info(op).result, dtype, dtype);
  return bits_to_double(result, evaluate_machine(op, dtype, result, constant_bits(dtype, x),
                                                 constant_bits(dtype, y), constant_bits(dtype, z)));
}

// Rows on integers.
int64_t on_integers(ElementwiseOp op, DType dtype, int64_t x, int64_t y = 0) {
  const DType result = result_dtype(info(op).result, dtype, dtype);
  return bits_to_int(result, evaluate_machine(op, dtype, result, constant_bits_int(dtype, x),
                                              constant_bits_int(dtype, y)));
}

uint64_t converted(DType from, DType to, double value) {
  return evaluate_machine(ElementwiseOp::convert, from, to, constant_bits(from, value));
}

void expect_same(double got, double expected, std::string_view what) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(got)) << what << " gave " << got;
  } else {
    EXPECT_EQ(got, expected) << what;
    EXPECT_EQ(std::signbit(got), std::signbit(expected)) << what;
  }
}

TEST(MachineSemantics, RowsExistExactlyForTheirTypes) {
  for (size_t i = 0; i < elementwise_table().size(); ++i) {
    const auto op = static_cast<ElementwiseOp>(i);
    for (const DType dtype : kAllDTypes) {
      const DType result = result_dtype(info(op).result, dtype, dtype);
      EXPECT_EQ(machine_function(op, dtype, result) != nullptr,
                is_machine(op) && info(op).types.contains(dtype))
          << info(op).name << " " << name(dtype);
    }
  }
  for (const DType from : kAllDTypes)
    for (const DType to : kAllDTypes) {
      EXPECT_TRUE(machine_function(ElementwiseOp::convert, from, to));
      EXPECT_EQ(machine_function(ElementwiseOp::bitcast, from, to) != nullptr,
                size_of(from) == size_of(to) && (from == DType::Bool) == (to == DType::Bool));
    }
}

TEST(MachineSemantics, IntegersWrap) {
  for (const DType dtype : {DType::I8, DType::I16, DType::I32, DType::I64}) {
    const int64_t greatest = INT64_MAX >> (64 - 8 * size_of(dtype)), least = -greatest - 1;
    EXPECT_EQ(on_integers(add, dtype, greatest, 1), least);
    EXPECT_EQ(on_integers(sub, dtype, least, 1), greatest);
    EXPECT_EQ(on_integers(mul, dtype, greatest, 2), -2);
    EXPECT_EQ(on_integers(neg, dtype, least), least);
    EXPECT_EQ(on_integers(abs, dtype, least), least);
    EXPECT_EQ(on_integers(div, dtype, least, -1), least);
    EXPECT_EQ(on_integers(rem, dtype, least, -1), 0);
    EXPECT_EQ(on_integers(div, dtype, 5, 0), 0);
    EXPECT_EQ(on_integers(rem, dtype, -5, 0), -5);
    EXPECT_EQ(on_integers(div, dtype, -7, 2), -3);
    EXPECT_EQ(on_integers(rem, dtype, -7, 2), -1);
    EXPECT_EQ(on_integers(min, dtype, least, greatest), least);
  }
  for (const DType dtype : {DType::U8, DType::U16, DType::U32, DType::U64}) {
    const auto width = static_cast<int64_t>(8 * size_of(dtype));
    const auto greatest = static_cast<int64_t>(~uint64_t{0} >> (64 - width));
    const int64_t half = int64_t{1} << width / 2;
    EXPECT_EQ(on_integers(sub, dtype, 0, 1), greatest);
    EXPECT_EQ(on_integers(neg, dtype, 1), greatest);
    EXPECT_EQ(on_integers(abs, dtype, greatest), greatest);
    EXPECT_EQ(on_integers(mul, dtype, half, half), 0);
    EXPECT_EQ(on_integers(div, dtype, greatest, 0), 0);
    EXPECT_EQ(on_integers(div, dtype, greatest, 2),
              static_cast<int64_t>(~uint64_t{0} >> (65 - width)));
    EXPECT_EQ(on_integers(rem, dtype, greatest, 0), greatest);
    EXPECT_EQ(on_integers(max, dtype, 1, greatest), greatest);
    EXPECT_EQ(on_integers(lt, dtype, 1, greatest), 1);
  }
  EXPECT_EQ(on_integers(lt, DType::I32, 1, -1), 0);
}

TEST(MachineSemantics, ShiftsBeyondTheWidth) {
  for (const DType dtype : kAllDTypes) {
    if (!is_integer(dtype)) continue;
    const int width = static_cast<int>(8 * size_of(dtype));
    const bool is_signed = is_signed_integer(dtype);
    const auto ones = static_cast<int64_t>(~uint64_t{0} >> (64 - width)),
               all_ones = is_signed ? -1 : ones;
    const auto rest = static_cast<int64_t>(~uint64_t{0} >> (65 - width));
    for (const int64_t beyond : {int64_t{width}, int64_t{width + 1}, all_ones, rest}) {
      EXPECT_EQ(on_integers(shl, dtype, 1, beyond), 0);
      EXPECT_EQ(on_integers(shr, dtype, 1, beyond), 0);
      EXPECT_EQ(on_integers(shr, dtype, -1, beyond), is_signed ? -1 : 0);
    }
    EXPECT_EQ(on_integers(shr, dtype, all_ones, 1), is_signed ? -1 : rest);
    EXPECT_EQ(on_integers(shl, dtype, 3, 0), 3);
    EXPECT_EQ(on_integers(shr, dtype, 3, 0), 3);
    EXPECT_EQ(on_integers(shl, dtype, 3, 4), 48);
    // The last place within the width: 2^31 or 2^63, wrapped.
    EXPECT_EQ(on_integers(shl, dtype, 3, width - 1), on_integers(shl, dtype, 1, width - 1));
    EXPECT_NE(on_integers(shl, dtype, 1, width - 1), 0);
  }
}

TEST(MachineSemantics, Logic) {
  EXPECT_EQ(on_integers(logical_not, DType::Bool, 0), 1);
  EXPECT_EQ(on_integers(logical_not, DType::Bool, 1), 0);
  EXPECT_EQ(on_integers(logical_not, DType::I32, 0), -1);
  EXPECT_EQ(on_integers(logical_not, DType::U32, 0), int64_t{UINT32_MAX});
  EXPECT_EQ(on_integers(logical_xor, DType::I64, -1, 5), ~int64_t{5});
  EXPECT_EQ(on_integers(max, DType::Bool, 0, 1), 1);
  EXPECT_EQ(on_integers(min, DType::Bool, 0, 1), 0);
  EXPECT_EQ(on_integers(lt, DType::Bool, 0, 1), 1);
}

TEST(MachineSemantics, FloatsFollowIeee754) {
  for (const DType dtype : kFloats) {
    const struct {
      ElementwiseOp op;
      double x, y, expected;
    } cases[] = {
        {add, kInf, -kInf, kNaN},  {add, -0.0, -0.0, -0.0}, {add, -0.0, 0.0, 0.0},
        {sub, kInf, kInf, kNaN},   {mul, 0, kInf, kNaN},    {mul, -0.0, 3, -0.0},
        {div, 1, 0, kInf},         {div, 1, -0.0, -kInf},   {div, 0, 0, kNaN},
        {div, kInf, kInf, kNaN},   {rem, 5.5, 2, 1.5},      {rem, -5.5, 2, -1.5},
        {rem, 5, kInf, 5},         {rem, kInf, 2, kNaN},    {rem, 1, 0, kNaN},
        {rem, -0.0, 1, -0.0},      {min, -0.0, 0.0, -0.0},  {min, 0.0, -0.0, -0.0},
        {max, -0.0, 0.0, 0.0},     {max, 0.0, -0.0, 0.0},   {min, kNaN, 1, kNaN},
        {min, 1, kNaN, kNaN},      {max, kNaN, kInf, kNaN}, {max, -kInf, kNaN, kNaN},
        {min, -kInf, kInf, -kInf}, {max, -kInf, 3, 3},      {eq, kNaN, kNaN, 0},
        {ne, kNaN, kNaN, 1},       {le, kNaN, 1, 0},        {ge, kNaN, 1, 0},
        {eq, -0.0, 0.0, 1},        {lt, -0.0, 0.0, 0},      {gt, kInf, 1, 1},
    };
    for (const auto& c : cases)
      expect_same(on_floats(c.op, dtype, c.x, c.y), c.expected,
                  std::string(info(c.op).name) + " " + std::string(name(dtype)));
    const struct {
      ElementwiseOp op;
      double x, expected;
    } unary[] = {
        {neg, 0.0, -0.0},     {neg, -kInf, kInf},       {abs, -0.0, 0.0},
        {abs, -kInf, kInf},   {sqrt, -0.0, -0.0},       {sqrt, -1, kNaN},
        {sqrt, kInf, kInf},   {floor, -0.5, -1},        {floor, -0.0, -0.0},
        {ceil, -0.5, -0.0},   {round_even, 0.5, 0.0},   {round_even, 1.5, 2},
        {round_even, 2.5, 2}, {round_even, -0.5, -0.0}, {trunc, -1.75, -1},
        {trunc, -0.5, -0.0},  {floor, kInf, kInf},      {trunc, kNaN, kNaN},
        {is_nan, kNaN, 1},    {is_nan, kInf, 0},
    };
    for (const auto& c : unary)
      expect_same(on_floats(c.op, dtype, c.x), c.expected,
                  std::string(info(c.op).name) + " " + std::string(name(dtype)));
    expect_same(on_floats(fma, dtype, kInf, 0, 1), kNaN, "fma");
    expect_same(on_floats(fma, dtype, 3, 4, -12), 0.0, "fma");
  }
  // Rounded once: 1 + 2^-24 lies half way, and what is beyond it decides.
  const double tiny = std::ldexp(1, -12) * (1 + std::ldexp(1, -11));
  EXPECT_EQ(on_floats(fma, DType::F32, tiny, std::ldexp(1, -12), 1), 1 + std::ldexp(1, -23));
}

TEST(MachineSemantics, SixteenBitFloatsRoundOnceFromF32) {
  EXPECT_EQ(on_floats(add, DType::F16, 2048, 1), 2048);  // half way, to even
  EXPECT_EQ(on_floats(add, DType::F16, 2050, 1), 2052);
  EXPECT_EQ(on_floats(mul, DType::F16, 60000, 2), kInf);
  EXPECT_EQ(on_floats(add, DType::BF16, 256, 1), 256);
  EXPECT_EQ(on_floats(add, DType::BF16, 258, 1), 260);
  EXPECT_EQ(on_floats(mul, DType::F16, std::ldexp(1, -14), 0.5), std::ldexp(1, -15));  // subnormal
}

TEST(MachineSemantics, BitsStayInNegAbsAndSelect) {
  constexpr uint64_t payload = 0x7fa00001;
  EXPECT_EQ(evaluate_machine(neg, DType::F32, DType::F32, payload), payload | 0x80000000u);
  EXPECT_EQ(evaluate_machine(abs, DType::F32, DType::F32, payload | 0x80000000u), payload);
  EXPECT_EQ(evaluate_machine(select, DType::F32, DType::F32, 1, payload, 0), payload);
  EXPECT_EQ(evaluate_machine(ElementwiseOp::bitcast, DType::F32, DType::I32, payload), payload);
  // Arithmetic makes one NaN.
  EXPECT_EQ(evaluate_machine(add, DType::F32, DType::F32, payload | 0x80000000u, 0), 0x7fc00000u);
  EXPECT_EQ(converted(DType::F64, DType::BF16, -kNaN), 0x7fc0u);
}

TEST(MachineSemantics, FloatsToIntegersSaturate) {
  for (const DType from : kFloats) {
    EXPECT_EQ(converted(from, DType::I32, kNaN), 0u);
    EXPECT_EQ(converted(from, DType::I32, kInf), 0x7fffffffu);
    EXPECT_EQ(converted(from, DType::I32, -kInf), 0x80000000u);
    EXPECT_EQ(converted(from, DType::U32, kInf), 0xffffffffu);
    EXPECT_EQ(converted(from, DType::U32, -1), 0u);
    EXPECT_EQ(converted(from, DType::I64, kInf), static_cast<uint64_t>(INT64_MAX));
    EXPECT_EQ(converted(from, DType::I64, -kInf), static_cast<uint64_t>(INT64_MIN));
    EXPECT_EQ(converted(from, DType::U64, kInf), ~uint64_t{0});
    EXPECT_EQ(converted(from, DType::U64, -kInf), 0u);
    EXPECT_EQ(converted(from, DType::I8, 128), 0x7fu);
    EXPECT_EQ(converted(from, DType::I8, -129), 0x80u);
    EXPECT_EQ(converted(from, DType::U8, 255.5), 0xffu);
    EXPECT_EQ(converted(from, DType::I16, kInf), 0x7fffu);
    EXPECT_EQ(converted(from, DType::U16, -kInf), 0u);
    EXPECT_EQ(converted(from, DType::I32, -1.75), 0xffffffffu);
    EXPECT_EQ(converted(from, DType::Bool, kNaN), 1u);
    EXPECT_EQ(converted(from, DType::Bool, -0.0), 0u);
    EXPECT_EQ(converted(from, DType::Bool, 0.25), 1u);
  }
  EXPECT_EQ(converted(DType::F32, DType::I32, 2147483648.0), 0x7fffffffu);
  EXPECT_EQ(converted(DType::F32, DType::I32, -2147483648.0), 0x80000000u);
  EXPECT_EQ(converted(DType::F32, DType::I32, 2147483520.0), 2147483520u);
  EXPECT_EQ(converted(DType::F64, DType::U32, 4294967295.5), 0xffffffffu);
  EXPECT_EQ(converted(DType::F64, DType::I64, 9223372036854774784.0), 9223372036854774784u);
}

TEST(MachineSemantics, ConversionsRoundOnce) {
  // One above half way between two bf16: rounding to f64 or f32 on the way would lose the one.
  const int64_t above = (int64_t{1} << 62) + (int64_t{1} << 54) + 1;
  const auto to = [](DType dtype, int64_t value) {
    return bits_to_double(dtype, constant_bits_int(dtype, value));
  };
  EXPECT_EQ(to(DType::BF16, above), std::ldexp(1, 62) + std::ldexp(1, 55));
  EXPECT_EQ(to(DType::BF16, above - 1), std::ldexp(1, 62));
  EXPECT_EQ(to(DType::BF16, -above), -std::ldexp(1, 62) - std::ldexp(1, 55));
  EXPECT_EQ(to(DType::BF16, INT64_MIN), -std::ldexp(1, 63));
  EXPECT_EQ(to(DType::F32, (int64_t{1} << 24) + 1), std::ldexp(1, 24));
  const double over_half = 1 + std::ldexp(1, -11) + std::ldexp(1, -40);
  EXPECT_EQ(bits_to_double(DType::F16, constant_bits(DType::F16, over_half)),
            1 + std::ldexp(1, -10));
}

TEST(MachineSemantics, SixteenBitFloatsSurviveF32AndF64) {
  for (const DType dtype : {DType::F16, DType::BF16})
    for (const DType wide : {DType::F32, DType::F64})
      for (uint64_t bits = 0; bits < 65536; ++bits) {
        if (std::isnan(bits_to_double(dtype, bits))) continue;
        const uint64_t there = evaluate_machine(ElementwiseOp::convert, dtype, wide, bits);
        ASSERT_EQ(evaluate_machine(ElementwiseOp::convert, wide, dtype, there), bits);
      }
}

TEST(ElementwiseTable, RowsAreWhole) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < elementwise_table().size(); ++i) {
    const auto op = static_cast<ElementwiseOp>(i);
    const ElementwiseInfo& row = elementwise_table()[i];
    EXPECT_TRUE(names.insert(row.name).second);
    EXPECT_EQ(parse_elementwise(row.name), op);
    EXPECT_FALSE(row.meaning.empty());
    EXPECT_TRUE(row.arity >= 1 && row.arity <= 3);
    EXPECT_EQ(row.body == nullptr, row.op_class == OpClass::Machine) << row.name;
    EXPECT_EQ(row.op_class == OpClass::Machine, is_machine(op)) << row.name;
    EXPECT_FALSE(row.through_body && (row.gradient || !row.body)) << row.name;
  }
  EXPECT_EQ(parse_elementwise("no such op"), std::nullopt);
}

TEST(Monoids, IdentitiesAreNeutral) {
  for (const Monoid monoid :
       {Monoid::Sum, Monoid::Prod, Monoid::Max, Monoid::Min, Monoid::And, Monoid::Or}) {
    EXPECT_EQ(parse_monoid(name(monoid)), monoid);
    for (const DType dtype : kAllDTypes) {
      if (!info(monoid).types.contains(dtype)) continue;
      const uint64_t identity = info(monoid).identity(dtype);
      for (const double value : {0.0, 1.0, -3.0, 1e30, -1e30}) {
        const uint64_t bits = constant_bits(dtype, value);
        EXPECT_EQ(evaluate_machine(info(monoid).combine, dtype, dtype, identity, bits), bits)
            << name(monoid) << " " << name(dtype) << " " << value;
      }
    }
  }
}

}  // namespace
}  // namespace braze
