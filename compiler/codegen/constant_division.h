// constant_division.h — unsigned division by a constant, as a multiplication and a shift.
//
// The code generators for GPUs write divisions by constants in this form and leave them to no
// compiler behind them, because of a fault of NVIDIA's PTX assembler (seen in 12.8 and 13.0, from
// -O1 on). Where a constant is added to the high half of a product, as in x / 5 + 6, the assembler
// joins both into one instruction, whose summand is a pair of registers with the constant in the
// upper one. Of two such instructions with equal factors (x / 5 + 6 and x / 5 - 4) it kept only
// one, since it compared only the lower registers. With a shift between the product and the sum the
// two are never joined. LLVM's own form has no shift where it knows that x is small.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>

#include "ir/index/expr.h"

namespace braze::codegen {

/// x / d for each x below 2^31 (and 2^31 itself): the high 32 bits of x * multiplier, which has 64
/// bits, shifted right by `shift`. The shift is at least 1.
/// Source: Granlund and Montgomery, Division by Invariant Integers using Multiplication, 1994,
/// theorem 4.2 with N = 31.
struct ConstantDivision {
  uint32_t multiplier = 0;
  int shift = 0;
};

/// `d` is at least 3, below 2^31 and no power of two.
constexpr ConstantDivision constant_division(uint32_t d) {
  const int log2 = std::bit_width(d);  // rounded up, since d is no power of two
  return {static_cast<uint32_t>((uint64_t{1} << (31 + log2)) / d + 1), log2 - 1};
}

/// How often `d` has to be added to x so that no value of its range is negative; nothing if 32 bits
/// do not hold the sum. Its quotient is greater by this number, and its remainder is the same.
constexpr std::optional<int64_t> divisors_until_positive(Interval range, int64_t d) {
  if (range.min < INT32_MIN) return std::nullopt;
  const int64_t added = range.min < 0 ? (d - 1 - range.min) / d : 0;
  if (range.max > INT32_MAX - added * d) return std::nullopt;
  return added;
}

}  // namespace braze::codegen
