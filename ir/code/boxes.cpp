#include "ir/code/boxes.h"

#include <algorithm>

#include "ir/code/code.h"

namespace braze {

namespace {

// The number of positions of an axis through which a coordinate runs as a digit; 0 if there is no
// such number. `left` positions remain below the digits that earlier coordinates have taken.
// `distance` is the coordinate minus its value at position 0.
int64_t digit_extent(const Expr& distance, const Expr& d, int64_t left) {
  for (int64_t extent = left; extent > 1; --extent)
    if (left % extent == 0 && (distance - floordiv(mod(d, left), left / extent)).is_constant(0))
      return extent;
  return 0;
}

}  // namespace

std::optional<TileBox> find_box(const std::vector<Expr>& at, const std::vector<int64_t>& extents) {
  const size_t rank = extents.size();
  std::vector<Expr> positions;
  std::unordered_map<std::string, Expr> first;
  for (size_t axis = 0; axis < rank; ++axis) {
    positions.push_back(position_symbol('d', axis, extents[axis]));
    first.insert_or_assign("d" + std::to_string(axis), 0);
  }
  TileBox out;
  size_t next = 0;   // axis of the tile
  int64_t left = 1;  // the number of its positions that no coordinate has taken
  const auto skip_taken = [&] {
    while (left == 1 && next < rank) {
      left = extents[next];
      if (left == 1) ++next;
    }
  };
  for (const Expr& e : at) {
    skip_taken();
    int64_t extent = 1;
    if (next < rank && e.uses("d" + std::to_string(next)))
      extent =
          digit_extent(e - e.substitute({{"d" + std::to_string(next), 0}}), positions[next], left);
    // No other axis may change the coordinate.
    for (size_t axis = 0; axis < rank; ++axis) {
      const bool own = axis == next && extent > 1;
      if (!own && extents[axis] > 1 && e.uses("d" + std::to_string(axis))) return std::nullopt;
    }
    out.at.push_back(e.substitute(first));
    out.extents.push_back(std::max<int64_t>(extent, 1));
    left /= out.extents.back();
    if (left == 1 && extent > 1) ++next;
  }
  skip_taken();
  if (next < rank) return std::nullopt;
  return out;
}

std::vector<Expr> at_panel(const std::vector<Expr>& at, const std::vector<int64_t>& extents,
                           int64_t panel) {
  const size_t last = extents.size() - 1;
  const int64_t panels = extents[last] / panel;
  const Expr number = panels > 1 ? Expr::index("panel", panels) : Expr(0);
  const Expr column = number * Expr(panel) + position_symbol('d', last, panel);
  std::vector<Expr> out;
  for (const Expr& e : at) out.push_back(e.substitute("d" + std::to_string(last), column));
  return out;
}

bool has_panel_boxes(const std::vector<Expr>& at, std::vector<int64_t> extents, int64_t panel) {
  if (extents.empty() || extents.back() % panel != 0) return false;
  const std::vector<Expr> first = at_panel(at, extents, panel);
  extents.back() = panel;
  const auto box = find_box(first, extents);
  return box && !box->extents.empty() && box->extents.back() == panel;
}

}  // namespace braze
