// emit_scans.cpp — scans, one digit at a time (E18), and the digits that become dimensions of
// tiles.
#include <algorithm>

#include "compiler/loops/emit_p.h"

namespace braze {

// Where every axis stands, and how long its turns are, at a task inside `loop`.
TreeEmitter::AxesNow TreeEmitter::axes_at(const LoopTask& task, const Loop& loop) const {
  AxesNow inside = axes_;
  for_each_task(loop.body, [&](const LoopTask& t, const std::vector<const Loop*>& around) {
    if (&t != &task) return;
    for (const LoopLevel& level : loop.levels) inside[level.axis] = {0, level.turn};
    for (const Loop* l : around)
      for (const LoopLevel& level : l->levels) inside[level.axis] = {0, level.turn};
  });
  return inside;
}

// An axis along which a scan or fold runs has one dimension for each of its digits, in all tiles
// that have as many of its indices. Each digit is scanned or folded by itself.
void TreeEmitter::note_digits(const LoopRegion& phase) {
  digits_.clear();
  if (tree_.roles) return;
  // The dimensions of a task's tile, with their extents and digits.
  struct BoundDim {
    size_t axis;
    int64_t extent;
    std::vector<Digit> digits;
  };
  std::vector<std::vector<BoundDim>> bound;  // by task
  for_each_task(phase, [&](const LoopTask& task, const std::vector<const Loop*>& around) {
    const bool reduces = task.kind == LoopTask::Kind::Scan || task.kind == LoopTask::Kind::Fold ||
                         task.kind == LoopTask::Kind::Arg || task.kind == LoopTask::Kind::Dot;
    if (!reduces || !tree_.values[task.target].layout) return;
    const Layout& layout = tree_.values[task.target].layout->layout;
    if (task.unit != Unit::None) return note_layout(layout);
    AxesNow inside = axes_;
    for (const Loop* l : around)
      for (const LoopLevel& level : l->levels) inside[level.axis] = {0, level.turn};
    std::vector<BoundDim>& dims = bound.emplace_back();
    for (const size_t axis : axes_of(task)) {
      const int64_t extent = extent_of(axis, inside);
      if (extent == 1) continue;
      dims.push_back({axis, extent, layout.axes.at(dims.size())});
      if (std::find(task.over.begin(), task.over.end(), axis) != task.over.end())
        digits_.try_emplace({axis, extent}, dims.back().digits);
    }
  });
  for (const std::vector<BoundDim>& dims : bound) {
    Layout layout;
    bool has_threads = false;
    for (const BoundDim& dim : dims) {
      has_threads = has_threads || std::ranges::any_of(dim.digits, is_spread);
      if (digits_.contains({dim.axis, dim.extent}))
        for (const Digit& digit : dim.digits) layout.axes.push_back({digit});
      else
        layout.axes.push_back(dim.digits);
    }
    if (has_threads) note_layout(layout);
  }
}

// Scans each digit by itself. Before an element come the total of the earlier turns, the totals of
// earlier elements of the outer digits, and the earlier elements of its own digit.
void TreeEmitter::scan(const LoopTask& task) {
  const TaskTile tile = tile_of(axes_of(task), axes_);
  const DType dtype = state_dtype(task);
  const DType result = tree_.values[task.target].dtype;
  const ElementwiseOp combine = info(task.monoid).combine;
  ValueId value = full(body(task.body, task.body.results[0], tile), tile, body_dtype(task));
  value = rounded(value, dtype);
  // A reverse scan begins with the elements beyond the end, so these must be the identity.
  if (task.reverse) value = without_tail(value, task.over, tile, info(task.monoid).padding(dtype));
  const auto state = states_.find(task.target);
  const auto along = positions(task.over, tile);
  const auto scanned = [&](ValueId of, int64_t axis, bool exclusive) {
    return builder_.append(TileScanOp{task.monoid, of, axis, task.reverse, exclusive},
                           {code_[of].type}, tree_.values[task.target].name)[0];
  };
  std::optional<ValueId> before;
  if (state != states_.end()) before = state->second;
  ValueId total = value;
  if (along.empty()) {
    total = before ? builder_.row(combine, {*before, value}) : value;
    const uint64_t nothing = info(task.monoid).identity(dtype);
    const ValueId first =
        task.exclusive && !before ? builder_.constant({dtype, 1, tile.extents}, nothing) : value;
    define(task, rounded(!task.exclusive ? total : before ? *before : first, result), tile);
    if (before) state->second = total;
    return;
  }
  // Each digit is scanned over the totals of the digits inside it, from the innermost outwards.
  std::vector<ValueId> parts;
  for (size_t n = along.size(); n-- > 0;) {
    parts.push_back(scanned(total, along[n], task.exclusive || n + 1 < along.size()));
    total = builder_.fold(task.monoid, total, {along[n]});
  }
  if (before) state->second = builder_.row(combine, {*before, total});
  for (size_t n = parts.size(); n-- > 0;)
    before = before ? builder_.row(combine, {*before, parts[n]}) : parts[n];
  define(task, rounded(*before, result), tile);
}

}  // namespace braze
