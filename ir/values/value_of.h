// value_of.h — which numbers an element type has.
#pragma once

#include <cmath>

#include "braze/dtype.h"

namespace braze {

/// Whether `number` is a value of `dtype`. Floating dtypes round it; but no finite number is one
/// that they would round to infinity.
inline bool is_value(double number, DType dtype) {
  if (is_floating(dtype)) {
    if (!std::isfinite(number)) return true;
    // Half an ulp above the greatest number.
    switch (dtype) {
      case DType::F16:
        return std::abs(number) < 65520;
      case DType::BF16:
        return std::abs(number) < 0x1.ffp127;
      case DType::F32:
        return std::abs(number) < 0x1.ffffffp127;
      default:
        return true;
    }
  }
  if (number != std::floor(number)) return false;
  switch (dtype) {
    case DType::Bool:
      return number == 0 || number == 1;
    case DType::I32:
      return -0x1p31 <= number && number < 0x1p31;
    case DType::U32:
      return 0 <= number && number < 0x1p32;
    default:
      return -0x1p63 <= number && number < 0x1p63;
  }
}

}  // namespace braze
