// value_of.h — which numbers an element type has.
#pragma once

#include <cmath>

#include "braze/dtype.h"

namespace braze {

/// The exponent of the least normal number of a floating dtype.
inline int least_exponent(DType dtype) { return 2 - (1 << (info(dtype).exponent - 1)); }

/// From here on, rounding to the nearest number of a floating dtype gives infinity, or NaN where
/// there is none: half an ulp above the greatest. Infinity for f64.
inline double overflow_threshold(DType dtype) {
  const auto& [name, kind, bytes, exponent, fraction, infinities, safetensors, npy] = info(dtype);
  // Without infinities there is one exponent more, of which the last number is NaN.
  const double half_ulp = std::ldexp(1.0, -fraction - 1);
  return std::ldexp(2 - (infinities ? 1 : 3) * half_ulp,
                    (1 << (exponent - 1)) - (infinities ? 1 : 0));
}

/// Whether `number` is a value of `dtype`. Floating dtypes round it; but no finite number is one
/// that they would round to infinity or NaN, and no infinity one of a dtype without them.
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
