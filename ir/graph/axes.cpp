#include "ir/graph/axes.h"

#include <algorithm>

#include "ir/graph/axis_lists.h"
#include "ir/graph/movement.h"

namespace braze {
namespace {

/// The numbers of the elements of a dot's operand, with its axes in the order batch, free,
/// contracted.
std::vector<int64_t> operand_order(std::span<const int64_t> shape, std::span<const int64_t> batch,
                                   std::span<const int64_t> contract) {
  std::vector<int64_t> axes(batch.begin(), batch.end());
  for (const int64_t axis : other_axes(shape.size(), batch, contract)) axes.push_back(axis);
  axes.insert(axes.end(), contract.begin(), contract.end());

  const std::vector<int64_t> dense = dense_strides(shape);
  std::vector<int64_t> extents, strides;
  for (int64_t axis : axes) {
    extents.push_back(shape[axis]);
    strides.push_back(dense[axis]);
  }
  return strided_offsets(extents, strides);
}

int64_t free_extent(std::span<const int64_t> shape, std::span<const int64_t> batch,
                    std::span<const int64_t> contract) {
  int64_t extent = 1;
  for (const int64_t axis : other_axes(shape.size(), batch, contract)) extent *= shape[axis];
  return extent;
}

}  // namespace

AxisLoop::AxisLoop(std::span<const int64_t> shape, int64_t axis) : extent(shape[axis]) {
  for (int64_t i = 0; i < axis; ++i) outer *= shape[i];
  for (size_t i = axis + 1; i < shape.size(); ++i) inner *= shape[i];
}

void for_each_line(const ScanOp& op, std::span<const int64_t> shape,
                   const std::function<void(std::span<const int64_t>)>& visit) {
  const AxisLoop loop(shape, op.axis);
  std::vector<int64_t> line(static_cast<size_t>(loop.extent));
  for (int64_t i = 0; i < loop.outer * loop.inner; ++i) {
    for (int64_t k = 0; k < loop.extent; ++k)
      line[static_cast<size_t>(op.reverse ? loop.extent - 1 - k : k)] = loop.element(i, k);
    visit(line);
  }
}

std::vector<IndexedElement> indexed_elements(const AxisLoop& loop, std::span<const int64_t> rows) {
  std::vector<IndexedElement> pairs;
  pairs.reserve(loop.outer * rows.size() * loop.inner);
  int64_t slice = 0;
  for (int64_t outer = 0; outer < loop.outer; ++outer)
    for (int64_t row : rows)
      for (int64_t inner = 0; inner < loop.inner; ++inner)
        pairs.push_back({slice++, (outer * loop.extent + row) * loop.inner + inner});
  return pairs;
}

std::vector<int64_t> reduction_targets(std::span<const int64_t> shape,
                                       std::span<const int64_t> axes) {
  std::vector<int64_t> kept, strides(shape.size(), 0);
  for (size_t axis = 0; axis < shape.size(); ++axis)
    if (!contains(axes, static_cast<int64_t>(axis))) kept.push_back(shape[axis]);
  const std::vector<int64_t> dense = dense_strides(kept);
  size_t next = 0;
  for (size_t axis = 0; axis < shape.size(); ++axis)
    if (!contains(axes, static_cast<int64_t>(axis))) strides[axis] = dense[next++];
  return strided_offsets(shape, strides);
}

MatrixProducts::MatrixProducts(const DotOp& op, std::span<const int64_t> left_shape,
                               std::span<const int64_t> right_shape)
    : rows(free_extent(left_shape, op.batch_left, op.contract_left)),
      columns(free_extent(right_shape, op.batch_right, op.contract_right)),
      left(operand_order(left_shape, op.batch_left, op.contract_left)),
      right(operand_order(right_shape, op.batch_right, op.contract_right)) {
  for (int64_t axis : op.batch_left) batches *= left_shape[axis];
  for (int64_t axis : op.contract_left) depth *= left_shape[axis];
}

}  // namespace braze
