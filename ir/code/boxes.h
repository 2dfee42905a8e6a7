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

/// The coordinates `at` in one panel of a tile: `panel` neighbours along its last axis, whose
/// extent is a multiple of that. The symbol "panel" is the panel's number. Rows that are composed
/// of several axes may be no box as a whole, while each panel, with one index of the outer axes, is
/// one.
std::vector<Expr> at_panel(const std::vector<Expr>& at, const std::vector<int64_t>& extents,
                           int64_t panel);

/// Whether each panel of a tile is a box.
bool has_panel_boxes(const std::vector<Expr>& at, std::vector<int64_t> extents, int64_t panel);

}  // namespace braze
