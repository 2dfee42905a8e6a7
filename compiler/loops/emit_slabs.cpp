// emit_slabs.cpp — the sums of dots that do not fit in the registers of a CPU (E19). A buffer holds
// them while the loop that carries them runs, and a loop inside it takes slabs of them into
// registers.
#include <algorithm>

#include "compiler/loops/emit_p.h"
#include "compiler/loops/steps/places.h"

namespace braze {

// The loops that take parts of a dot's sums inside of the loop that carries these, the outermost
// first.
std::vector<LoopLevel> TreeEmitter::slabs_of(const LoopTask& task,
                                             const std::vector<const Loop*>& around) const {
  if (task.kind != LoopTask::Kind::Dot || code_.warps > 0) return {};
  const auto is_over = [&](const Loop* loop) { return runs_over_any(*loop, task.over); };
  std::vector<LoopLevel> out;
  for (auto it = std::ranges::find_if(around, is_over); it != around.end(); ++it)
    for (const LoopLevel& level : (*it)->levels)
      if (contains(tree_.values[task.target].axes, level.axis) &&
          tree_.axes[level.axis].extent.range().max > level.turn)
        out.push_back(level);
  return out;
}

void TreeEmitter::each_slab(std::span<const LoopLevel> slabs, const std::function<void()>& body) {
  if (slabs.empty()) return body();
  const LoopLevel& level = slabs.front();
  const int64_t count = (extent_of(level.axis, axes_) + level.turn - 1) / level.turn;
  builder_.for_loop(turn_name(level.axis), 0, count, 1, {},
                    [&](const Expr& index, const std::vector<ValueId>&) {
                      in_turn(level, axes_[level.axis].begin + index * Expr(level.turn),
                              /*shared=*/true, [&] { each_slab(slabs.subspan(1), body); });
                      return std::vector<ValueOperand>{};
                    });
}

// Runs `body` with the state in the present turns as a state in registers, between loading and
// storing it.
void TreeEmitter::with_slab(const LoopTask& task, bool loads, const std::function<void()>& body) {
  const TaskTile tile = tile_of(tree_.values[task.target].axes, axes_);
  const MemoryId memory = chips_.at(task.target).memory;
  const std::vector<Expr> place = place_in_buffer(task.target, tile);
  state_tiles_[task.target] = tile;
  states_[task.target] = loads ? builder_.load(memory, place, {state_dtype(task), 1, tile.extents})
                               : nothing_combined(task);
  body();
  builder_.store(states_.at(task.target), memory, place);
  states_.erase(task.target);
  forget_reads(task.target);
}

void TreeEmitter::begin_slabs(const LoopTask& task) {
  each_slab(slabs_.at(task.target), [&] { with_slab(task, /*loads=*/false, [] {}); });
  in_slabs_.insert(task.target);
}

void TreeEmitter::add_to_slab(const LoopTask& task) {
  if (is_summed_as_fold(task, axes_))
    refuse(task.location, "only outer products can be added to sums in a buffer");
  with_slab(task, /*loads=*/true, [&] {
    if (task.rescale.has_value()) rescale(task);
    dot(task);
  });
}

void TreeEmitter::end_slabs(const LoopTask& task) {
  in_slabs_.erase(task.target);
  if (!task.rescale || !is_guarded(task)) return;
  each_slab(slabs_.at(task.target), [&] {
    with_slab(task, /*loads=*/true, [&] {
      ValueId& state = states_.at(task.target);
      state = last_rescale(task, state, state_tiles_.at(task.target));
    });
  });
}

// Makes the factors of sums in slabs that need buffers before the outermost loop over slabs, which
// would make them again in each of its turns. Then runs the loop.
void TreeEmitter::in_raised(const Loop& loop, const std::function<void()>& body) {
  std::vector<std::pair<const LoopTask*, size_t>> raised;
  for_each_task(loop.body, [&](const LoopTask& task, const auto&) {
    if (!in_slabs_.contains(task.target)) return;
    for (size_t n = 0; n < task.body.results.size(); ++n) {
      if (raised_factors_.contains({&task, n}) || !needs_buffer(task, n)) continue;
      raised.emplace_back(&task, n);
      raised_factors_.insert_or_assign(raised.back(), buffered_factor(task, n));
    }
  });
  body();
  for (const auto& factor : raised) raised_factors_.erase(factor);
}

}  // namespace braze
