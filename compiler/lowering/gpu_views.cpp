// gpu_views.cpp — views that rename registers, and those that move elements between threads: L14.
#include <algorithm>

#include "compiler/lowering/gpu.h"
#include "ir/support/text.h"

namespace braze {

std::vector<GpuLowering::FlatDigit> GpuLowering::flattened(const ValueType& tile) const {
  std::vector<FlatDigit> out;
  for (const std::vector<Digit>& axis : layout(tile).axes) {
    for (const Digit& digit : axis) {
      const bool spread = is_spread(digit);
      const FlatDigit next{spread, of_block(digit), spread ? stride_of(digit) : 0, digit.extent};
      const bool joins = !out.empty() && out.back().spread == spread &&
                         out.back().block == next.block &&
                         (!spread || out.back().stride == next.stride * next.extent);
      if (joins) {
        out.back().stride = next.stride;
        out.back().extent *= next.extent;
      } else {
        out.push_back(next);
      }
    }
  }
  return out;
}

bool GpuLowering::renames(const MovementOp& op, ValueId source, ValueId result) const {
  const ValueType &from = tile_[source].type, &to = tile_[result].type;
  if (op.kind == MovementKind::Slice && slices_registers(op, from, to)) return true;
  if (op.kind == MovementKind::Reshape && flattened(from) == flattened(to) &&
      lower_type(from).lanes == lower_type(to).lanes)
    return true;
  // Elements can only move through the memory of one block.
  for (const ValueType& tile : {from, to})
    if (lies_in_blocks(tile))
      fail(kLayouts,
           fmt::format(
               "kernel @{}: a view of {} with the layout {} would move elements between blocks",
               tile_.name, tile.to_string(), layout(tile).to_string()),
           {{}, {}, "leave the digits of blocks (b) on one axis, unchanged"});
  return false;
}

// Whether every sliced axis is cut between registers of each thread.
bool GpuLowering::slices_registers(const MovementOp& op, const ValueType& from,
                                   const ValueType& to) const {
  for (size_t axis = 0; axis < from.rank(); ++axis) {
    const AxisDigits own = digits(from, axis), other = digits(to, axis);
    if (own.spread != other.spread) return false;
    if (from.extents[axis] == to.extents[axis]) {
      if (own != other) return false;
    } else if (own.spread.empty()) {
      if (own.lanes != other.lanes && to.extents[axis] > 1) return false;
    } else if (own.lanes != other.lanes || own.inner > 1 || other.inner > 1 ||
               op.arguments.empty() || op.arguments[axis] % (from.extents[axis] / own.array)) {
      return false;
    }
  }
  return true;
}

ValueOperand GpuLowering::rename(const MovementOp& op, const ValueOperand& value,
                                 const Statement& s) {
  if (op.kind != MovementKind::Slice) return Lowering::rename(op, value, s);
  const ValueType& from = tile_[op.operand.value].type;
  const ValueType to = lower_type(result_type(s));
  const int32_t lanes = type_of(value).lanes;
  std::vector<int64_t> at = op.arguments;
  // Along an axis that threads share, the cut lies between parts of all of them.
  for (size_t axis = 0; axis < at.size(); ++axis)
    if (const AxisDigits own = digits(from, axis); !own.spread.empty())
      at[axis] /= from.extents[axis] / own.array / (axis + 1 == at.size() ? lanes : 1);
  const int64_t lane = at.back() % lanes;
  at.back() /= lanes;
  ValueType part = to;
  part.lanes = lanes;
  const ValueOperand cut = part == type_of(value)
                               ? value
                               : ValueOperand(builder_.view(MovementKind::Slice, value, part, at));
  return to.lanes == lanes ? cut : ValueOperand(emit(LaneOp{cut, lane}, to, s));
}

// With this padding, the threads of a warp read a column from different banks of 4 bytes.
int64_t GpuLowering::row_padding(const ValueType& tile) const {
  return std::max<int64_t>(4 / static_cast<int64_t>(size_of(tile.dtype)), 1);
}

}  // namespace braze
