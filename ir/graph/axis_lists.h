// axis_lists.h — lists of axes, such as those of a product and orders of axes.
#pragma once

#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

#include "ir/graph/graph.h"

namespace braze {

using Axes = std::vector<int64_t>;

inline bool contains(std::span<const int64_t> axes, int64_t axis) {
  return std::ranges::find(axes, axis) != axes.end();
}

/// `first`, `first + 1`, and so on.
inline Axes axes_from(int64_t first, size_t count) {
  Axes out(count);
  std::iota(out.begin(), out.end(), first);
  return out;
}

/// The axes of a tensor of this rank that are in neither list.
inline Axes other_axes(size_t rank, std::span<const int64_t> a, std::span<const int64_t> b = {}) {
  Axes out = axes_from(0, rank);
  std::erase_if(out, [&](int64_t axis) { return contains(a, axis) || contains(b, axis); });
  return out;
}

/// Whether these are the last axes of a tensor of this rank, in their order.
inline bool are_last(std::span<const int64_t> axes, size_t rank) {
  auto expected = static_cast<int64_t>(rank - axes.size());
  return std::ranges::all_of(axes, [&](int64_t axis) { return axis == expected++; });
}

/// The order that undoes an order.
inline Axes inverse(std::span<const int64_t> order) {
  Axes out(order.size());
  for (size_t i = 0; i < order.size(); ++i)
    out[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return out;
}

// Of the factors of a product: `side` is 0 for the left one, and 1 for the right one.

inline const Axes& batch(const DotOp& dot, size_t side) {
  return side == 0 ? dot.batch_left : dot.batch_right;
}
inline const Axes& contract(const DotOp& dot, size_t side) {
  return side == 0 ? dot.contract_left : dot.contract_right;
}
/// The axes that a product keeps and that only this factor has.
inline Axes free_axes(const DotOp& dot, size_t side, const Shape& factor) {
  return other_axes(factor.rank(), batch(dot, side), contract(dot, side));
}

}  // namespace braze
