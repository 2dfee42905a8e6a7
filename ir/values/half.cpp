#include "ir/values/half.h"

#include <algorithm>

#include "braze/dtype.h"

namespace braze {

namespace {

/// The bits of the nearest number of a format, ties to even.
template <DType D>
uint16_t round_to(double value) {
  constexpr int kExponent = info(D).exponent, kFraction = info(D).fraction;
  constexpr int kSign = kExponent + kFraction;
  constexpr int kBias = (1 << (kExponent - 1)) - 1;
  constexpr uint16_t kTop = ((1 << kExponent) - 1) << kFraction;
  // The result beyond all numbers: infinity, or NaN if the format has no infinity.
  constexpr uint16_t kBeyond = info(D).infinities ? kTop : (1 << kSign) - 1;
  constexpr uint16_t kQuiet = info(D).infinities ? 1 << (kFraction - 1) : kBeyond;
  constexpr uint64_t kHidden = 1ull << 52;

  const auto bits = std::bit_cast<uint64_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 63 << kSign);
  const uint64_t fraction = bits & (kHidden - 1);
  const int source_exponent = static_cast<int>(bits >> 52 & 0x7ff);
  if (source_exponent == 0x7ff) {
    const auto payload = static_cast<uint16_t>(fraction >> (52 - kFraction));
    return sign | (fraction ? kTop | kQuiet | payload : kBeyond);
  }
  // The exponent field of the result if it is normal. If it is below 1, the result is subnormal: it
  // has no hidden bit, and loses one more fraction bit for each step below 1.
  const int exponent = source_exponent - 1023 + kBias;
  const int drop = 52 - kFraction + (exponent < 1 ? 1 - exponent : 0);
  if (exponent >= 1 << kExponent) return sign | kBeyond;
  if (drop > 53) return sign;  // less than half of the smallest subnormal

  const uint64_t significand = kHidden | fraction;
  const uint64_t half = 1ull << (drop - 1);
  const uint64_t rest = significand & ((1ull << drop) - 1);
  uint64_t kept = significand >> drop;
  if (rest > half || (rest == half && (kept & 1))) ++kept;
  // A carry out of the fraction increases the exponent, which gives the right number, or infinity.
  // The hidden bit counts as one in the exponent field.
  if (exponent > 1) kept += static_cast<uint64_t>(exponent - 1) << kFraction;
  return sign | static_cast<uint16_t>(std::min<uint64_t>(kept, kBeyond));
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

uint16_t double_to_f16(double value) { return round_to<DType::F16>(value); }
uint16_t float_to_f16(float value) { return round_to<DType::F16>(value); }
uint16_t double_to_bf16(double value) { return round_to<DType::BF16>(value); }
uint8_t double_to_f8e4m3(double value) {
  return static_cast<uint8_t>(round_to<DType::F8E4M3>(value));
}
uint8_t double_to_f8e5m2(double value) {
  return static_cast<uint8_t>(round_to<DType::F8E5M2>(value));
}

float f8e4m3_to_float(uint8_t bits) {
  const uint32_t magnitude = bits & 0x7f, sign = static_cast<uint32_t>(bits & 0x80) << 24;
  if (magnitude == 0x7f) return std::bit_cast<float>(sign | 0x7fc00000);
  // As the bits of an f32, the number is 2^120 times too small, whether it is normal or not.
  const float value = std::bit_cast<float>(magnitude << 20) * 0x1p120f;
  return sign ? -value : value;
}

float f8e5m2_to_float(uint8_t bits) {  // the upper half of an f16
  return f16_to_float(static_cast<uint16_t>(bits << 8));
}

uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  // bf16 is the upper half of f32. Adding slightly less than half a unit, or half a unit if the
  // last bit is odd, carries exactly where rounding to nearest even rounds up.
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace braze
