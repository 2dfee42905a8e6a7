// emit_states.cpp — the states that loops carry for folds, dots and scans: how they begin, and how
// their parts meet at the end (E3, E7).
#include <algorithm>

#include "compiler/loops/emit_p.h"
#include "ir/ops/scalar.h"
#include "ir/support/text.h"

namespace braze {

// The tasks whose states this loop carries, in the order of the tree.
std::vector<const LoopTask*> TreeEmitter::states_of(const Loop& loop) const {
  std::vector<const LoopTask*> out;
  for_each_task(loop.body, [&](const LoopTask& task, const std::vector<const Loop*>&) {
    if (task.has_state() && runs_over_any(loop, task.over)) out.push_back(&task);
  });
  return out;
}

// The values that a loop carries for these tasks.
std::vector<ValueId*> TreeEmitter::carried(const Stream& stream) {
  std::vector<ValueId*> out;
  for (const LoopTask* task : stream.carried) {
    if (task->kind == LoopTask::Kind::Scan) {
      for (ValueId& part : totals_.at(task->target)) out.push_back(&part);
      continue;
    }
    out.push_back(&states_.at(task->target));
    if (task->kind == LoopTask::Kind::Arg) out.push_back(&numbers_.at(task->target));
  }
  if (ring_ && ring_->ahead.turns == &stream.loop)
    for (ValueId& factor : ring_->ahead.next) out.push_back(&factor);
  return out;
}

// Begins a state with the identity, in a tile over the task's axes. If no task in the loop needs
// the total, the tile also has the digits that the task folds.
void TreeEmitter::begin_state(const LoopTask& task, const Loop& loop) {
  if (slabs_.contains(task.target)) return begin_slabs(task);
  const bool is_scan = task.kind == LoopTask::Kind::Scan;
  const bool is_arg = task.kind == LoopTask::Kind::Arg;
  for_each_task(loop.body, [&](const LoopTask& t, const std::vector<const Loop*>& around) {
    if (&t != &task) return;
    for (const Loop* l : around)
      for (const LoopLevel& level : l->levels) {
        const auto& axes = tree_.values[task.target].axes;
        // The tile of a loop of at most one turn is all of the axis.
        if (tree_.axes[level.axis].extent.range().max <= level.turn) continue;
        if (contains(axes, level.axis))
          refuse(task.location, fmt::format("the state %{} has the axis {}, but a loop inside of "
                                            "the one that carries it runs over that axis",
                                            tree_.values[task.target].name, name_of(level.axis)));
      }
  });
  const AxesNow inside = axes_at(task, loop);
  const bool running = read_in(loop.body, task.target) || task.rescale;
  const bool parted = running && keeps_parts(task, loop);
  if (is_arg && (running || tree_.roles))
    refuse(
        task.location,
        "an arg-reduction must be in a plain program, and only tasks after its loop can read it");
  TaskTile tile = tile_of(axes_of(task), inside);
  const bool summed_dot = task.kind == LoopTask::Kind::Dot && is_summed_as_fold(task, inside);
  const bool folds = is_arg || task.kind == LoopTask::Kind::Fold || summed_dot;
  const bool unfolded = folds && (!running || parted) && !tree_.roles;
  if (parted) parted_.insert(task.target);
  if (unfolded) unfolded_.insert(task.target);
  lay_as_accumulator(tile);
  drop(tile, unfolded ? folded_in_turn(task, tile) : positions(task.over, tile));
  drop_constant(task, tile);
  if (is_scan) {
    totals_[task.target] = first_parts(task, tile);
    state_tiles_[task.target] = tile;
    return;
  }
  if (task.kind == LoopTask::Kind::Dot && !summed_dot) {
    // The summed axes are no dimensions of a product's result.
    TaskTile own = tile_of(tree_.values[task.target].axes, inside);
    tile = own;
    if (is_asynchronous(task)) {
      if (tile.extents.size() != 2)
        refuse(task.location, "the result of a wgmma must be a tile of two axes");
      tile.layout = accumulator_layout(tile.extents[1]);
    }
  }
  if (is_arg) {
    const Best none = nothing_found(task, tile);
    states_[task.target] = none.value;
    numbers_[task.target] = none.number;
    state_tiles_[task.target] = tile;
    return;
  }
  nothing_[task.target] = info(monoid_of(task)).identity(state_dtype(task));
  state_tiles_[task.target] = tile;
  states_[task.target] = nothing_combined(task);
  state_depth_[task.target] = counters_.size();
}

// The state of a fold or a dot that has combined nothing yet.
ValueId TreeEmitter::nothing_combined(const LoopTask& task) {
  const DType dtype = state_dtype(task);
  const TaskTile& tile = state_tiles_.at(task.target);
  const uint64_t first =
      task.unit != Unit::None ? constant_bits(dtype, 0.0) : info(monoid_of(task)).padding(dtype);
  const ValueId state = builder_.constant({dtype, 1, tile.extents}, first);
  lay_out(state, tile);
  return state;
}

// Whether each lane and thread may continue with a running value of its own part. It may if
// everything that reads the value follows it, folds the same axes, and keeps its own parts too.
// What a shift reads may follow others itself.
bool TreeEmitter::keeps_parts(const LoopTask& task, const Loop& loop) const {
  if (tree_.roles) return false;
  std::map<size_t, const LoopTask*> parted;
  for_each_task(loop.body, [&](const LoopTask& t, const auto&) {
    const bool folds = t.kind == LoopTask::Kind::Fold ||
                       (t.kind == LoopTask::Kind::Dot && is_summed_as_fold(t, axes_at(t, loop)));
    if (folds && (t.rescale || read_in(loop.body, t.target))) parted.emplace(t.target, &t);
  });
  const auto stays = [&](const LoopTask& t) {
    bool out = true;
    if (t.rescale)
      for (const LoopStep& s : t.rescale->steps)
        if (s.kind == LoopStep::Kind::Read) out = out && parted.contains(s.source);
    for_each_task(loop.body, [&](const LoopTask& other, const auto&) {
      const bool in_body = reads(other.body, t.target);
      const bool follows = other.rescale && reads(*other.rescale, t.target);
      if (&other == &t || (!in_body && !follows)) return;
      out = out && follows && other.over == t.over && parted.contains(other.target) &&
            !(in_body && t.rescale);
    });
    return out;
  };
  while (std::erase_if(parted, [&](const auto& entry) { return !stays(*entry.second); }) > 0) {
  }
  return parted.contains(task.target);
}

void TreeEmitter::end_states(const std::vector<const LoopTask*>& tasks) {
  for (const LoopTask* task : tasks) end_state(*task);
  parts_.clear();
}

void TreeEmitter::end_state(const LoopTask& task) {
  if (in_slabs_.contains(task.target)) return end_slabs(task);
  if (const auto total = totals_.extract(task.target)) {
    if (!keeps_axis(task))
      return define(task, rounded(total.mapped()[task.part], tree_.values[task.target].dtype),
                    state_tiles_.at(task.target));
    tiles_of_.erase(task.target);  // every turn has a tile of its own
    return;
  }
  ValueId state = states_.at(task.target);
  TaskTile tile = state_tiles_.at(task.target);
  states_.erase(task.target);
  if (task.kind == LoopTask::Kind::Arg) {
    unfolded_.erase(task.target);
    const Best best = best_along(task, {state, numbers_.at(task.target)}, tile);
    numbers_.erase(task.target);
    return define(task, rounded(best.number, tree_.values[task.target].dtype), tile);
  }
  if (unfolded_.erase(task.target)) {
    if (parted_.erase(task.target)) {
      parts_[task.target] = {state, tile.dims, std::vector<Expr>(tile.dims.size(), Expr(0)),
                             tile.digits};
      if (task.rescale) {
        rescaling_ = Rescaling::ToTotal;
        state = rescaled(task, state, tile);
        rescaling_ = Rescaling::InTurn;
      }
    }
    const auto axes = folded_in_turn(task, tile);
    if (!axes.empty()) state = builder_.fold(task.monoid, state, axes);
    drop(tile, axes);
  }
  if (task.rescale && !task.shifts) state = last_rescale(task, state, tile);
  // All blocks of the cluster get the sum of what they have, in the order of their ranks.
  if (task.combine == Combine::Rank)
    state = builder_.append(FoldOp{.monoid = Monoid::Sum, .operand = state, .cluster = true},
                            {code_[state].type}, "sum")[0];
  // The sums of a matrix unit are rounded later, in the parts in which they are read.
  const bool later = is_asynchronous(task);
  define(task, later ? state : rounded(state, tree_.values[task.target].dtype), tile);
}

TileProgram emit(const LoopTree& tree) { return TreeEmitter(tree).emit(); }

}  // namespace braze
