#include "ir/values/half.h"

namespace braze {

namespace {

/// The nearest number with `kExponent` exponent bits and `kFraction` fraction bits, ties to even.
template <int kExponent, int kFraction>
uint16_t round_to(double value) {
  constexpr int kBias = (1 << (kExponent - 1)) - 1;
  constexpr uint16_t kInfinity = ((1 << kExponent) - 1) << kFraction;
  constexpr uint16_t kQuiet = 1 << (kFraction - 1);
  constexpr uint64_t kHidden = 1ull << 52;

  const auto bits = std::bit_cast<uint64_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 63 << 15);
  const uint64_t fraction = bits & (kHidden - 1);
  const int source_exponent = static_cast<int>(bits >> 52 & 0x7ff);
  if (source_exponent == 0x7ff) {
    const auto payload = static_cast<uint16_t>(fraction >> (52 - kFraction));
    return sign | kInfinity | (fraction ? kQuiet | payload : 0);
  }
  // The exponent field of the result if it is normal; below 1 it is subnormal, which has no hidden
  // bit and loses one more fraction bit per step.
  const int exponent = source_exponent - 1023 + kBias;
  const int drop = 52 - kFraction + (exponent < 1 ? 1 - exponent : 0);
  if (exponent >= (1 << kExponent) - 1) return sign | kInfinity;
  if (drop > 53) return sign;  // less than half of the smallest subnormal

  const uint64_t significand = kHidden | fraction;
  const uint64_t half = 1ull << (drop - 1);
  const uint64_t rest = significand & ((1ull << drop) - 1);
  uint64_t kept = significand >> drop;
  if (rest > half || (rest == half && (kept & 1))) ++kept;
  // A carry out of the fraction moves into the exponent, which is right also into infinity. The
  // hidden bit counts as one in the exponent field.
  if (exponent > 1) kept += static_cast<uint64_t>(exponent - 1) << kFraction;
  return sign | static_cast<uint16_t>(kept);
}

}  // namespace

float f16_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = bits >> 10 & 0x1f;
  const uint32_t fraction = bits & 0x3ff;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  if (exponent == 0x1f) {
    const uint32_t quiet = fraction ? 0x400000 : 0;
    return std::bit_cast<float>(sign | 0x7f800000 | quiet | fraction << 13);
  }
  return std::bit_cast<float>(sign | (exponent + 127 - 15) << 23 | fraction << 13);
}

uint16_t double_to_f16(double value) { return round_to<5, 10>(value); }
uint16_t float_to_f16(float value) { return round_to<5, 10>(value); }
uint16_t double_to_bf16(double value) { return round_to<8, 7>(value); }

uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  // bf16 is the upper half of f32: adding just under half a unit, or half where the unit is odd,
  // carries where nearest-even rounds up.
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace braze
