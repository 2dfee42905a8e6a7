// half.h — float16 and bfloat16: the 16-bit floats as C++ types that can be stored and converted.
#pragma once

#include <cstdint>

namespace braze {

/// A 16-bit float of IEEE 754. It converts to float exactly, and arithmetic is done in float.
struct float16 {
  uint16_t bits = 0;  ///< sign, 5 bits of exponent, 10 of mantissa

  float16() = default;  ///< zero
  /// Rounds to nearest, ties to even.
  explicit float16(float value);
  operator float() const;  ///< exact NOLINT: and so implicit, on purpose
  static constexpr float16 from_bits(uint16_t bits) { return float16(bits, 0); }  ///< from its bits

 private:
  constexpr float16(uint16_t b, int) : bits(b) {}
};

/// A 16-bit float with the sign, the exponent and the upper fraction bits of a float.
struct bfloat16 {
  uint16_t bits = 0;  ///< sign, 8 bits of exponent, 7 of mantissa

  bfloat16() = default;  ///< zero
  /// Rounds to nearest, ties to even.
  explicit bfloat16(float value);
  operator float() const;  ///< exact NOLINT: and so implicit, on purpose
  static constexpr bfloat16 from_bits(uint16_t bits) {
    return bfloat16(bits, 0);
  }  ///< from its bits

 private:
  constexpr bfloat16(uint16_t b, int) : bits(b) {}
};

static_assert(sizeof(float16) == 2 && sizeof(bfloat16) == 2);

}  // namespace braze
