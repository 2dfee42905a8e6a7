// value_of.h — which numbers an element type has.
#pragma once

#include <cmath>

#include "braze/dtype.h"

namespace braze {

/// Whether `number` is a value of `dtype`; every one is of the floating dtypes, which round it.
inline bool is_value(double number, DType dtype) {
  if (is_floating(dtype)) return true;
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
