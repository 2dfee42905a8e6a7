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
  const auto inside_of = [&](const std::vector<const Loop*>& around) {
    AxesNow inside = axes_;
    for (const Loop* l : around)
      for (const LoopLevel& level : l->levels) inside[level.axis] = {0, level.turn};
    return inside;
  };
  for_each_task(phase, [&](const LoopTask& task, const std::vector<const Loop*>& around) {
    const bool reduces = task.kind == LoopTask::Kind::Scan || task.kind == LoopTask::Kind::Fold ||
                         task.kind == LoopTask::Kind::Arg || task.kind == LoopTask::Kind::Dot;
    if (!reduces || !tree_.values[task.target].layout) return;
    const Layout& layout = tree_.values[task.target].layout->layout;
    if (task.unit != Unit::None) return note_layout(layout);
    const AxesNow inside = inside_of(around);
    std::vector<BoundDim>& dims = bound.emplace_back();
    for (const size_t axis : axes_of(task)) {
      const int64_t extent = extent_of(axis, inside);
      if (extent == 1) continue;
      dims.push_back({axis, extent, layout.axes.at(dims.size())});
      if (contains(task.over, axis)) digits_.try_emplace({axis, extent}, dims.back().digits);
    }
  });
  // A store along a folded axis lies as the terms do, along those axes of theirs that it has.
  std::map<std::pair<size_t, int64_t>, std::vector<Digit>> of_terms;
  for (const std::vector<BoundDim>& dims : bound)
    for (const BoundDim& dim : dims) of_terms.try_emplace({dim.axis, dim.extent}, dim.digits);
  for_each_task(phase, [&](const LoopTask& task, const std::vector<const Loop*>& around) {
    if (task.makes_value() || task.layout) return;
    const AxesNow inside = inside_of(around);
    std::vector<BoundDim> dims;
    bool is_folded = false;
    for (const size_t axis : axes_of(task)) {
      const int64_t extent = extent_of(axis, inside);
      if (extent == 1) continue;
      is_folded |= digits_.contains({axis, extent});
      const auto digits = of_terms.find({axis, extent});
      if (digits == of_terms.end()) return;
      dims.push_back({axis, extent, digits->second});
    }
    if (is_folded) bound.push_back(std::move(dims));
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

DType TreeEmitter::part_dtype(const LoopTask& task, size_t part) {
  const DType own = task.body.steps[task.body.results[part]].dtype;
  return compute_type(task.combiner.accumulation(part, own));
}

std::vector<ValueId> TreeEmitter::combined(const LoopTask& task, const std::vector<ValueId>& left,
                                           const std::vector<ValueId>& right) {
  const auto operands = [](const std::vector<ValueId>& parts) {
    return std::vector<ValueOperand>(parts.begin(), parts.end());
  };
  std::vector<ValueId> out;
  for (const ValueOperand& part : task.combiner.combine(
           operands(left), operands(right),
           [&](ElementwiseOp op, std::vector<ValueOperand> arguments, std::optional<DType>) {
             return ValueOperand(builder_.row(op, std::move(arguments)));
           },
           [](DType dtype, uint64_t bits) { return ValueOperand::literal(dtype, bits); }))
    out.push_back(part.value);
  return out;
}

// Whether the value has all results of the scan, and not only the last one.
bool TreeEmitter::keeps_axis(const LoopTask& scan) const {
  const std::vector<size_t>& axes = tree_.values[scan.target].axes;
  return contains(axes, scan.over[0]);
}

// What comes before the first element: the identity, or what the body says.
std::vector<ValueId> TreeEmitter::first_parts(const LoopTask& task, const TaskTile& tile) {
  const size_t parts = task.combiner.parts();
  std::vector<ValueId> out;
  for (size_t part = 0; part < parts; ++part) {
    const DType dtype = part_dtype(task, part);
    if (task.begins_after()) {
      out.push_back(full(body(task.body, task.body.results[parts + part], tile), tile, dtype));
      continue;
    }
    out.push_back(builder_.constant({dtype, 1, tile.extents}, task.combiner.padding(part, dtype)));
    lay_out(out.back(), tile);
  }
  return out;
}

// Scans each digit by itself. Before an element come the total of the earlier turns, the totals of
// earlier elements of the outer digits, and the earlier elements of its own digit.
void TreeEmitter::scan(const LoopTask& task) {
  const Combiner& combiner = task.combiner;
  const TaskTile tile = tile_of(axes_of(task), axes_);
  const DType result = tree_.values[task.target].dtype;
  using Parts = std::vector<ValueId>;
  Parts own;
  for (size_t part = 0; part < combiner.parts(); ++part) {
    const uint32_t step = task.body.results[part];
    const DType dtype = part_dtype(task, part);
    ValueId value = full(body(task.body, step, tile), tile, task.body.steps[step].dtype);
    value = rounded(value, dtype);
    // A reverse scan begins with the elements beyond the end, and a total has them all, so these
    // must be the identity.
    if (task.reverse || !keeps_axis(task))
      value = without_tail(value, task.over, tile, combiner.padding(part, dtype));
    own.push_back(value);
  }
  const auto finish = [&](const Parts& parts) {
    define(task, rounded(parts[task.part], result), tile);
  };
  const auto state = totals_.find(task.target);
  const auto along = positions(task.over, tile);
  TaskTile of_total = tile;
  drop(of_total, along);
  std::optional<Parts> before;
  if (state != totals_.end())
    before = state->second;
  else if (task.begins_after())
    before = first_parts(task, of_total);
  // With all elements of this turn, the state is complete, or it is that of the next turn.
  const auto end_turn = [&](const Parts& total) {
    if (state != totals_.end())
      state->second = total;
    else if (!keeps_axis(task))
      define(task, rounded(total[task.part], result), of_total);
  };
  if (along.empty()) {
    const Parts total = before ? combined(task, *before, own) : own;
    end_turn(total);
    if (!keeps_axis(task)) return;
    if (!task.exclusive)
      finish(total);
    else if (before)
      finish(*before);
    else
      define(task,
             rounded(builder_.constant({part_dtype(task, task.part), 1, tile.extents},
                                       combiner.identity(task.part, part_dtype(task, task.part))),
                     result),
             tile);
    return;
  }
  // Each digit is scanned over the totals of the digits inside it, from the innermost outwards.
  // Folds make the totals of a monoid; those of tuples come with the scan.
  std::vector<Parts> scanned;
  Parts total = own;
  for (size_t n = along.size(); n-- > 0;) {
    const std::vector<ValueOperand> operands(total.begin(), total.end());
    const bool exclusive = task.exclusive || n + 1 < along.size(), totals = combiner.body();
    std::vector<ValueType> types;
    for (const ValueId part : total) types.push_back(code_[part].type);
    for (size_t part = 0; totals && part < total.size(); ++part) {
      types.push_back(types[part]);
      types.back().extents[static_cast<size_t>(along[n])] = 1;
    }
    const Parts made =
        builder_.append(TileScanOp{combiner, operands, along[n], task.reverse, exclusive, totals},
                        types, tree_.values[task.target].name);
    const auto middle = made.begin() + static_cast<std::ptrdiff_t>(total.size());
    scanned.emplace_back(made.begin(), middle);
    if (totals)
      total.assign(middle, made.end());
    else
      total[0] = builder_.fold(*combiner.monoid(), total[0], {along[n]});
  }
  end_turn(before ? combined(task, *before, total) : total);
  if (!keeps_axis(task)) return;
  for (size_t n = scanned.size(); n-- > 0;)
    before = before ? combined(task, *before, scanned[n]) : scanned[n];
  finish(*before);
}

}  // namespace braze
