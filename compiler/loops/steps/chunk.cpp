#include "compiler/loops/steps/chunk.h"

#include <algorithm>

#include "compiler/loops/text.h"
#include "ir/support/text.h"
#include "ir/target/target.h"

namespace braze {

namespace {

bool is_over(const LoopTask& task, const Loop& loop) {
  return std::any_of(task.over.begin(), task.over.end(),
                     [&](size_t axis) { return runs_over(loop, axis); });
}

// What every chunk would do, and must not.
std::optional<Refusal> stands_before(const LoopTree& tree, const ItemPlace& place) {
  const LoopRegion& region = region_of(tree, place);
  for (size_t i = 0; i < place.items.back(); ++i) {
    const auto* task = std::get_if<LoopTask>(&region[i]);
    if (task && (task->kind == LoopTask::Kind::Stage || task->kind == LoopTask::Kind::Compute))
      continue;
    return Refusal{&codes::kBetween, "every chunk would do what stands before the loop",
                   "chunk the first loop, or merge the loops"};
  }
  return std::nullopt;
}

std::optional<Refusal> refuse_states(const LoopTree& tree, const Loop& loop) {
  bool carries = false;
  std::optional<Refusal> refusal;
  for_each_task(loop.body, [&](const LoopTask& task, const auto&) {
    if (!task.has_state() || !is_over(task, loop)) return;
    carries = true;
    const std::string& name = tree.values[task.target].name;
    const bool combines = task.kind == LoopTask::Kind::Fold || task.kind == LoopTask::Kind::Dot;
    if (!combines || task.combine != Combine::None)
      refusal = Refusal{&codes::kIsState, fmt::format("parts of %{} are not combined", name),
                        "folds and dots are, once"};
  });
  if (refusal) return refusal;
  if (!carries)
    return Refusal{&codes::kKindsDiffer, fmt::format("`{}` carries nothing", to_text(tree, loop)),
                   "split the loop, and put turns on grid"};
  return std::nullopt;
}

}  // namespace

std::optional<Refusal> legal(const LoopTree& tree, const ChunkStep& step) {
  const auto place = find_loop(tree, step.loop);
  if (!place) return no_such("loop", step.loop.to_string());
  const Loop& loop = loop_at(tree, *place);
  if (loop.parallel || loop.levels.size() != 1)
    return Refusal{&codes::kKindsDiffer,
                   fmt::format("`{}` is no stream over one level", to_text(tree, loop)),
                   "chunks are those of a stream"};
  if (auto refusal = marked(tree, loop)) return refusal;
  if (loop.bounds)
    return Refusal{&codes::kBoundsDepend, fmt::format("`{}` has bounds", to_text(tree, loop)),
                   "take this step before the loop has bounds"};
  const auto around = loops_around(tree, *place);
  const bool outermost = around.empty() && step.how != Combine::Rank;
  if (!outermost && (around.size() != 1 || around[0]->on != Machine::Grid))
    return Refusal{&codes::kNesting,
                   fmt::format("`{}` does not stand right in a loop on grid", to_text(tree, loop)),
                   "take the loops around it `on` grid first, and groups later"};
  if (!around.empty())
    if (auto refusal = marked(tree, *around[0])) return refusal;
  if (is_cut(around, loop.levels[0].axis))
    return Refusal{&codes::kLevelsDiffer, "the loop around runs over the same axis",
                   "chunk the axis before it is split"};
  if (auto refusal = stands_before(tree, *place)) return refusal;
  // A part of the machine inside would have to go on as a whole.
  for (const LoopItem& item : region_of(tree, *place))
    if (const auto* inner = std::get_if<Box<Loop>>(&item); inner && (*inner)->on != Machine::None)
      return Refusal{&codes::kNesting, "a part of the machine goes on by itself",
                     "take groups and ranks later"};
  const auto target = find_target(tree.target);
  if (step.how == Combine::Rank && target && step.number > target->cluster_blocks)
    return Refusal{&codes::kNoRoom,
                   fmt::format("a cluster has up to {} blocks", target->cluster_blocks),
                   "take fewer chunks, or another way to combine them"};
  return refuse_states(tree, loop);
}

LoopTree take(const LoopTree& tree, const ChunkStep& step) {
  LoopTree out = tree;
  const ItemPlace place = find_loop(out, step.loop).value();
  Loop& loop = loop_at(out, place);
  const auto [axis, turn] = loop.levels[0];
  const size_t chunk = out.axes.size();
  out.axes.push_back({unused_axis(out, out.axes[axis].name + "c"), step.number});
  const Expr turns = ceildiv(out.axes[axis].extent, turn), c = out.axes[chunk].index();
  loop.bounds.emplace(floordiv(c * turns, step.number) * turn,
                      floordiv((c + 1) * turns, step.number) * turn);
  change_tasks(loop.body, [&](LoopTask& task) {
    if (!task.has_state() || !is_over(task, loop)) return;
    task.over.insert(task.over.begin(), chunk);
    task.combine = step.how;
  });
  LoopRegion& region = region_of(out, place);
  if (place.items.size() > 1 && step.how != Combine::Rank) {
    ItemPlace grid = place;
    grid.items.pop_back();
    loop_at(out, grid).levels.push_back({chunk});
    return out;
  }
  Loop chunks;
  chunks.parallel = true;
  chunks.levels = {{chunk}};
  chunks.on = step.how == Combine::Rank ? Machine::Rank : Machine::Grid;
  chunks.body = std::move(region);
  region.clear();
  region.emplace_back(std::move(chunks));
  return out;
}

}  // namespace braze
