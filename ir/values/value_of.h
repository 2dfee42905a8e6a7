// value_of.h — tells which numbers an element type can represent.
#pragma once

#include <cmath>

#include "braze/dtype.h"

namespace braze {

/// The exponent of the least normal number of a floating dtype.
inline int least_exponent(DType dtype) { return 2 - (1 << (info(dtype).exponent - 1)); }

/// The least number that a floating dtype rounds to infinity, or to NaN if it has no infinity: half
/// an ulp above its greatest number. For f64 this is infinity.
inline double overflow_threshold(DType dtype) {
  const auto& [name, kind, bytes, exponent, fraction, infinities, safetensors, npy] = info(dtype);
  // A format without infinities has one exponent more, whose last number is NaN.
  const double half_ulp = std::ldexp(1.0, -fraction - 1);
  return std::ldexp(2 - (infinities ? 1 : 3) * half_ulp,
                    (1 << (exponent - 1)) - (infinities ? 1 : 0));
}

/// Whether `number` can be stored as `dtype`. A floating dtype may round it, but must not turn a
/// finite number into infinity or NaN; an infinity can be stored only in a dtype with infinities.
inline bool is_value(double number, DType dtype) {
  if (is_floating(dtype))
    return std::isnan(number) || (std::isinf(number) && info(dtype).infinities) ||
           std::abs(number) < overflow_threshold(dtype);
  if (number != std::floor(number)) return false;
  const int width = static_cast<int>(8 * size_of(dtype));
  switch (info(dtype).kind) {
    case NumberKind::Boolean:
      return number == 0 || number == 1;
    case NumberKind::Signed:
      return -std::ldexp(1.0, width - 1) <= number && number < std::ldexp(1.0, width - 1);
    default:
      return 0 <= number && number < std::ldexp(1.0, width);
  }
}

}  // namespace braze
