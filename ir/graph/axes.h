// axes.h — loops over axes for the interpreters: loops along one axis, reductions and contractions.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "ir/graph/graph.h"

namespace braze {

/// A tensor seen as [outer, extent, inner], where `extent` is that of one axis.
struct AxisLoop {
  int64_t outer = 1, extent = 1, inner = 1;

  AxisLoop(std::span<const int64_t> shape, int64_t axis);
  /// The index of element `i` along the axis.
  int64_t index(int64_t i) const { return i / inner % extent; }
  /// The number of the element at `k` along the axis in line `i`, where [outer, inner] numbers the
  /// lines.
  int64_t element(int64_t i, int64_t k) const {
    return (i / inner * extent + k) * inner + i % inner;
  }
};

/// A pair of elements in a gather or scatter: one of the slices, [outer, rows.size(), inner], and
/// one of the indexed tensor, `loop`.
struct IndexedElement {
  int64_t slice;    ///< element of the gathered or scattered slices
  int64_t element;  ///< element of the tensor that is indexed
};
/// All pairs. Pairs with the same `element` are in increasing order of the row.
std::vector<IndexedElement> indexed_elements(const AxisLoop& loop, std::span<const int64_t> rows);

/// Calls `visit` for every line along the axis of a scan, with its elements in the scan's order.
void for_each_line(const ScanOp& op, std::span<const int64_t> shape,
                   const std::function<void(std::span<const int64_t>)>& visit);

/// For every element of a tensor, the element of the reduction over `axes` to which it contributes.
std::vector<int64_t> reduction_targets(std::span<const int64_t> shape,
                                       std::span<const int64_t> axes);

/// A contraction as a batch of matrix products [rows, depth] x [columns, depth].
struct MatrixProducts {
  int64_t batches = 1, rows = 1, columns = 1, depth = 1;
  /// The elements of each operand in the order [batch, free, contracted].
  std::vector<int64_t> left, right;

  MatrixProducts(const DotOp& op, std::span<const int64_t> left_shape,
                 std::span<const int64_t> right_shape);
};

/// The elements with the numbers in `order`, in that order.
template <class T>
std::vector<T> pack(const std::vector<T>& elements, std::span<const int64_t> order) {
  std::vector<T> packed;
  packed.reserve(order.size());
  for (int64_t i : order) packed.push_back(elements[i]);
  return packed;
}

}  // namespace braze
