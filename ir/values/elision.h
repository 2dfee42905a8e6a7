// elision.h — how long the text of a tensor is.
#pragma once

#include <cstdint>
#include <span>

namespace braze {

/// The elements that the text of a whole tensor shows, or its empty brackets, which may be many
/// though there is no element; INT64_MAX if there are more.
inline int64_t shown_items(std::span<const int64_t> shape) {
  int64_t items = 1;
  for (const int64_t extent : shape) {
    if (extent == 0) break;
    if (__builtin_mul_overflow(items, extent, &items)) return INT64_MAX;
  }
  return items;
}

}  // namespace braze
