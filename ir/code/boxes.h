// boxes.h — tiles whose elements are a box of a tensor.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/index/expr.h"

namespace braze {

/// A box of a tensor: the coordinates of its first element, and its extents.
struct TileBox {
  std::vector<Expr> at;
  std::vector<int64_t> extents;
};

/// The box through which the coordinates `at`, over the positions d0, d1, .. of a tile, run. None
/// unless its elements in row-major order are those of the tile. Each coordinate is fixed, or runs
/// along an axis of the tile or a digit of one, in order: rows that are 8x8 pixels are read at
/// floordiv(d0, 8) and mod(d0, 8).
std::optional<TileBox> find_box(const std::vector<Expr>& at, const std::vector<int64_t>& extents);

}  // namespace braze
