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

}  // namespace

PipelinedLowering::Exchange PipelinedLowering::exchange(DType dtype, int64_t count) {
  return {shared("exchange", dtype, role_.op->copies * count, 128, exchanges_),
          role_.copy * Expr(count)};
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
  const Exchange place = exchange(type.dtype, type.count());
  store_to_exchange(place, as_array(op.operand, axes_of(from)), from);
  wait_for({place.memory, false});
  const Form own = form(to);
  set(to, builder_.load(place.memory, {place.base + element_number(type, own.positions)}, own.type),
      axes);
}

void PipelinedLowering::lower_scan(const TileScanOp& op, const Statement& s) {
  if (!op.combiner.monoid() || op.totals) not_lowered("a scan of tuples, or with totals,", s);
  Tuple parts;
  for (const ValueOperand& part : op.operands) parts.push_back(as_array(part, axes_of(part.value)));
  define_scan(s, scan_through_memory(op, std::move(parts), s));
}

}  // namespace braze
