#include "ir/graph/movement.h"

#include <numeric>

namespace braze {
namespace {

using Dims = std::vector<int64_t>;

/// A result that is a strided view of its operand.
std::vector<Source> view(const Dims& shape, const Dims& strides, int64_t base = 0) {
  std::vector<Source> sources;
  for (int64_t offset : strided_offsets(shape, strides, base)) sources.push_back({0, offset});
  return sources;
}

struct SourceFinder {
  std::span<const Dims> operands;
  const Dims& result;
  const Sizes& sizes;

  std::vector<Source> operator()(const BroadcastOp& op) const {
    const Dims dense = dense_strides(operands[0]);
    Dims strides(result.size(), 0);
    for (size_t i = 0; i < op.axes.size(); ++i)
      if (operands[0][i] != 1) strides[op.axes[i]] = dense[i];
    return view(result, strides);
  }

  std::vector<Source> operator()(const ReshapeOp&) const {
    return view(result, dense_strides(result));
  }

  std::vector<Source> operator()(const BarrierOp&) const {
    return view(result, dense_strides(result));
  }

  std::vector<Source> operator()(const ConstrainOp&) const {
    return view(result, dense_strides(result));
  }

  std::vector<Source> operator()(const TransposeOp& op) const {
    const Dims dense = dense_strides(operands[0]);
    Dims strides;
    for (int64_t axis : op.permutation) strides.push_back(dense[axis]);
    return view(result, strides);
  }

  std::vector<Source> operator()(const SliceOp& op) const {
    Dims strides = dense_strides(operands[0]);
    int64_t base = 0;
    for (size_t axis = 0; axis < strides.size(); ++axis) {
      base += sizes(op.starts[axis]) * strides[axis];
      strides[axis] *= op.strides[axis];
    }
    return view(result, strides, base);
  }

  std::vector<Source> operator()(const ReverseOp& op) const {
    Dims strides = dense_strides(operands[0]);
    int64_t base = 0;
    for (int64_t axis : op.axes) {
      base += (result[axis] - 1) * strides[axis];
      strides[axis] = -strides[axis];
    }
    return view(result, strides, base);
  }

  std::vector<Source> operator()(const PadOp& op) const {
    const Dims dense = dense_strides(result);
    Dims strides = dense;
    int64_t base = 0;
    for (size_t axis = 0; axis < strides.size(); ++axis) {
      base += sizes(op.low[axis]) * dense[axis];
      strides[axis] *= op.interior[axis] + 1;
    }
    const Dims targets = strided_offsets(operands[0], strides, base);
    std::vector<Source> sources(strided_offsets(result, dense).size(), Source{1, 0});
    for (size_t i = 0; i < targets.size(); ++i) sources[targets[i]] = {0, static_cast<int64_t>(i)};
    return sources;
  }

  std::vector<Source> operator()(const WindowsOp& op) const {
    const Dims dense = dense_strides(operands[0]);
    std::vector<Source> sources(strided_offsets(result, dense_strides(result)).size(),
                                Source{1, 0});
    Dims at(result.size(), 0);
    for (Source& source : sources) {
      Dims from = at;
      bool inside = true;
      for (size_t i = 0; i < op.axes.size(); ++i) {
        const int64_t position =
            at[op.axes[i]] * op.strides[i] + at[op.taps[i]] * op.dilations[i] - sizes(op.low[i]);
        from[op.axes[i]] = position / op.gaps[i];
        inside = inside && position >= 0 && position % op.gaps[i] == 0 &&
                 from[op.axes[i]] < operands[0][op.axes[i]];
      }
      if (inside)
        source = {0, std::inner_product(from.begin(), from.end(), dense.begin(), int64_t{0})};
      for (size_t axis = result.size(); axis-- > 0 && ++at[axis] == result[axis];) at[axis] = 0;
    }
    return sources;
  }

  std::vector<Source> operator()(const ConcatOp& op) const {
    const Dims dense = dense_strides(result);
    std::vector<Source> sources(strided_offsets(result, dense).size());
    int64_t base = 0;
    for (uint32_t part = 0; part < operands.size(); ++part) {
      const Dims targets = strided_offsets(operands[part], dense, base);
      for (size_t i = 0; i < targets.size(); ++i)
        sources[targets[i]] = {part, static_cast<int64_t>(i)};
      base += operands[part][op.axis] * dense[op.axis];
    }
    return sources;
  }

  template <class Other>
  std::vector<Source> operator()(const Other&) const {
    BRAZE_CHECK(false, "this op is not a movement op");
    return {};
  }
};

}  // namespace

std::vector<int64_t> dense_strides(std::span<const int64_t> shape) {
  Dims strides(shape.size());
  int64_t step = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    strides[axis] = step;
    step *= shape[axis];
  }
  return strides;
}

std::vector<int64_t> strided_offsets(std::span<const int64_t> shape,
                                     std::span<const int64_t> strides, int64_t base) {
  // Each axis, outermost first, replaces every offset so far by one offset for each index.
  Dims offsets{base};
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    Dims finer;
    finer.reserve(offsets.size() * shape[axis]);
    for (int64_t offset : offsets)
      for (int64_t i = 0; i < shape[axis]; ++i) finer.push_back(offset + i * strides[axis]);
    offsets = std::move(finer);
  }
  return offsets;
}

std::vector<Source> movement_sources(const Node& node,
                                     std::span<const std::vector<int64_t>> operands,
                                     const Sizes& sizes) {
  const Dims result = sizes(node.type.shape);
  return std::visit(SourceFinder{operands, result, sizes}, node.op);
}

}  // namespace braze
