// elision.h — decides how long the text of a tensor would be.
#pragma once

#include <cstdint>
#include <span>

namespace braze {

/// The number of items that the text of a whole tensor shows: its elements, or its empty brackets,
/// which may be many although there is no element. At most INT64_MAX.
inline int64_t shown_items(std::span<const int64_t> shape) {
  int64_t items = 1;
  for (const int64_t extent : shape) {
    if (extent == 0) break;
    if (__builtin_mul_overflow(items, extent, &items)) return INT64_MAX;
  }
  return items;
}

}  // namespace braze
