// pipelined_moves.cpp — elements that move to other threads through on-chip storage of the copy:
// relayout and scan.
#include <algorithm>

#include "compiler/lowering/pipelined.h"

namespace braze {

namespace {

// Whether each element stays in its thread.
bool same_threads(const Layout& from, const Layout& to) {
  const auto same = [](const Digit& a, const Digit& b) {
    return a.resource == b.resource && a.extent == b.extent &&
           (a.resource == Resource::Register || a.stride == b.stride);
  };
  for (size_t axis = 0; axis < from.rank(); ++axis)
    if (!std::equal(from.axes[axis].begin(), from.axes[axis].end(), to.axes[axis].begin(),
                    to.axes[axis].end(), same))
      return false;
  return true;
}

// The row-major number of the element at these positions.
Expr element_number(const ValueType& type, const Positions& positions) {
  Expr out;
  for (size_t axis = 0; axis < type.rank(); ++axis)
    out = out * Expr(type.extents[axis]) + positions.at("d" + std::to_string(axis));
  return out;
}

}  // namespace

// A place through which elements of a tile move between threads. Each copy of the role has its own.
PipelinedLowering::Exchange PipelinedLowering::exchange(const ValueType& tile) {
  const int64_t count = tile.count();
  return {shared("exchange", tile.dtype, role_.op->copies * count, 128, exchanges_),
          role_.copy * Expr(count)};
}

// Stores all elements of `value`, which has the layout of `tile`, by their row-major numbers.
void PipelinedLowering::leave(const Exchange& place, const ValueOperand& value, ValueId tile) {
  const ArrayForm own = form(tile, axes_of(tile), 1);
  copy_barrier();  // the previous turn has read it
  builder_.store(value, place.memory,
                 {place.base + element_number(tile_[tile].type, own.positions)},
                 {single_store(layouts_[tile]), {}});
  copy_barrier();
}

void PipelinedLowering::lower_op(const RelayoutOp& op, const Statement& s) {
  const ValueId from = op.operand.value, to = s.results[0];
  const auto axes = axes_of(to);
  if (const auto bits = constants_.find(from); bits != constants_.end()) {
    constants_[to] = bits->second;
    return;
  }
  if (same_threads(layouts_[from], layouts_[to])) return set(to, as_array(op.operand, axes), axes);
  const ValueType& type = tile_[from].type;
  const Exchange place = exchange(type);
  leave(place, as_array(op.operand, axes_of(from)), from);
  const ArrayForm own = form(to, axes, 1);
  set(to, builder_.load(place.memory, {place.base + element_number(type, own.positions)}, own.type),
      axes);
}

// Step s combines each element with the one `s` places before it. If there is none, the identity
// stands for it, which changes no bit.
void PipelinedLowering::lower_op(const TileScanOp& op, const Statement& s) {
  const auto monoid = op.combiner.monoid();
  if (!monoid || op.totals) not_lowered("a scan of tuples, or with totals,", s);
  const ValueId from = op.operands[0].value, to = s.results[0];
  const ValueType& type = tile_[from].type;
  const auto axis = static_cast<size_t>(op.axis);
  const int64_t extent = type.extents[axis];
  const auto axes = axes_of(from);
  const ArrayForm own = form(from, axes, 1);
  const std::string d = "d" + std::to_string(axis);
  const uint64_t identity = info(*monoid).identity(type.dtype);
  const Exchange place = exchange(type);
  ValueOperand value = as_array(op.operands[0], axes);
  const auto before = [&](int64_t distance) {
    leave(place, value, from);
    Positions positions = own.positions;
    Expr& at = positions.at(d);
    at = op.reverse ? at + distance : at - distance;
    const IndexComparison there = op.reverse
                                      ? IndexComparison{at, IndexComparison::Kind::Lt, extent}
                                      : IndexComparison{at, IndexComparison::Kind::Ge, 0};
    return builder_.load(place.memory, {place.base + element_number(type, positions)}, own.type,
                         {{there}, {}}, identity);
  };
  for (int64_t distance = 1; distance < extent; distance *= 2)
    value = row(info(*monoid).combine, {before(distance), value});
  if (op.exclusive) value = before(1);
  set(to, value, axes);
}

}  // namespace braze
