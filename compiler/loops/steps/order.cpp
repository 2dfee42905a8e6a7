#include "compiler/loops/steps/order.h"

#include <algorithm>

#include "compiler/loops/text.h"
#include "ir/support/text.h"

namespace braze {

namespace {

// Refuses unless the second loop is the only item of the first, as `reorder` and `tuple` require.
std::optional<Refusal> not_parent_and_child(const LoopTree& tree, const LoopName& outer,
                                            const LoopName& inner) {
  const auto place = find_loop(tree, outer), child = find_loop(tree, inner);
  if (!place) return no_such("loop", outer.to_string());
  if (!child) return no_such("loop", inner.to_string());
  const Loop &l = loop_at(tree, *place), &k = loop_at(tree, *child);
  if (only_child(l) != &k)
    return Refusal{
        &codes::kBetween,
        fmt::format("{} is not the only item in {}", inner.to_string(), outer.to_string()),
        "name a loop and the only loop inside it"};
  for (const LoopLevel& level : l.levels)
    if (runs_over(k, level.axis))
      return Refusal{
          &codes::kLevelsDiffer, fmt::format("both loops run over {}", tree.axes[level.axis].name),
          "leave the loops over one axis as they are, the one with larger turns outside"};
  if (auto refusal = marked(tree, l)) return refusal;
  return marked(tree, k);
}

// Refuses a copy without an axis that differs between groups, because it serves all groups.
std::optional<Refusal> copies_without(const LoopTree& tree, const Loop& loop) {
  std::optional<Refusal> out;
  for_each_task(loop.body, [&](const LoopTask& task, const auto&) {
    if (task.kind != LoopTask::Kind::Stage) return;
    for (const size_t axis : axes_used(tree, task))
      if (runs_over(loop, axis) && !contains(tree.values[task.target].axes, axis))
        out = Refusal{&codes::kNotAnAxis,
                      fmt::format("%{} is a copy for one index of {}",
                                  tree.values[task.target].name, tree.axes[axis].name),
                      "take the step `stage` after `on`"};
  });
  return out;
}

}  // namespace

// --- reorder ------------------------------------------------------------------------------------

namespace {

// Whether the loop runs over terms of which the last one in a place remains.
bool replaces_over(const LoopTask& task, const Loop& loop) {
  return task.replaces && runs_over_any(loop, task.over);
}
Refusal last_stays(const LoopTree& tree, const LoopTask& task) {
  return {&codes::kScanOrder,
          fmt::format("the last term in a place of %{} remains, so the order of terms matters",
                      tree.values[task.target].name),
          "leave the order of the loops as it is"};
}

}  // namespace

std::optional<Refusal> legal(const LoopTree& tree, const ReorderStep& step) {
  if (auto refusal = not_parent_and_child(tree, step.outer, step.inner)) return refusal;
  const Loop& outer = loop_at(tree, find_loop(tree, step.outer).value());
  const Loop& inner = *only_child(outer);
  if (outer.on != Machine::None || inner.on != Machine::None)
    return Refusal{&codes::kNesting,
                   "the turns of these loops are already dealt to parts of the machine",
                   "take this step before `on`"};
  if (inner.bounds)
    for (const LoopLevel& level : outer.levels) {
      const LoopAxis& axis = tree.axes[level.axis];
      for (const Expr* bound : {&inner.bounds->first, &inner.bounds->second})
        if (bound->uses(axis.name) || bound->uses(end_symbol(axis).symbol_name()))
          return Refusal{&codes::kBoundsDepend,
                         fmt::format("the bounds of `{}` depend on the turn of {}",
                                     to_text(tree, inner), axis.name),
                         "leave this loop inside"};
    }
  std::optional<Refusal> refusal;
  for_each_task(inner.body, [&](const LoopTask& task, const auto&) {
    if (task.rescale)
      refusal =
          Refusal{&codes::kCarried,
                  fmt::format("%{} is rescaled by a running value", tree.values[task.target].name),
                  "take this step before the loops are merged"};
    if (replaces_over(task, outer) && replaces_over(task, inner)) refusal = last_stays(tree, task);
    if (task.kind != LoopTask::Kind::Scan) return;
    const bool over = runs_over(outer, task.over[0]) || runs_over(inner, task.over[0]);
    bool other = false;
    for (const Loop* loop : {&outer, &inner})
      for (const LoopLevel& level : loop->levels)
        other |= !contains(tree.values[task.target].axes, level.axis);
    if (over && other)
      refusal =
          Refusal{&codes::kScanOrder,
                  fmt::format("%{} is a scan along these loops", tree.values[task.target].name),
                  "leave the loops of a scan in their order"};
  });
  if (refusal) return refusal;
  for (const Loop* loop : {&outer, &inner})
    for (const LoopLevel& level : loop->levels)
      if (auto other = reads_other_turns(tree, inner.body, level.axis)) return other;
  std::vector<size_t> axes;
  for (const Loop* loop : {&outer, &inner})
    for (const LoopLevel& level : loop->levels) axes.push_back(level.axis);
  return reads_what_it_writes(tree, inner.body, axes);
}

LoopTree take(LoopTree tree, const ReorderStep& step) {
  const ItemPlace place = find_loop(tree, step.outer).value();
  LoopItem& item = region_of(tree, place)[place.items.back()];
  Loop outer = std::move(*std::get<Box<Loop>>(item));
  Loop inner = std::move(*std::get<Box<Loop>>(outer.body[0]));
  outer.body = LoopRegion(std::move(inner.body));
  inner.body.clear();
  inner.body.emplace_back(std::move(outer));
  item = std::move(inner);
  return tree;
}

// --- tuple --------------------------------------------------------------------------------------

std::optional<Refusal> legal(const LoopTree& tree, const TupleStep& step) {
  if (auto refusal = not_parent_and_child(tree, step.outer, step.inner)) return refusal;
  const Loop& outer = loop_at(tree, find_loop(tree, step.outer).value());
  const Loop& inner = *only_child(outer);
  if (outer.parallel != inner.parallel || outer.down != inner.down)
    return Refusal{&codes::kKindsDiffer,
                   fmt::format("{} and {} are loops of different kinds", step.outer.to_string(),
                               step.inner.to_string()),
                   "make both streams, or both parallel"};
  if (outer.bounds || inner.bounds)
    return Refusal{&codes::kBoundsDepend, "a loop over several axes cannot have bounds",
                   "leave the loop with bounds as it is"};
  if (inner.on != Machine::None)
    return Refusal{&codes::kNesting,
                   fmt::format("`{}` is already dealt to a part of the machine inside `{}`",
                               to_text(tree, inner), to_text(tree, outer)),
                   "take this step before `on`"};
  return std::nullopt;
}

LoopTree take(LoopTree tree, const TupleStep& step) {
  Loop& outer = loop_at(tree, find_loop(tree, step.outer).value());
  Loop inner = std::move(*std::get<Box<Loop>>(outer.body[0]));
  outer.levels.insert(outer.levels.end(), inner.levels.begin(), inner.levels.end());
  outer.body = std::move(inner.body);
  return tree;
}

// --- on -----------------------------------------------------------------------------------------

std::optional<Refusal> legal(const LoopTree& tree, const OnStep& step) {
  const auto place = find_loop(tree, step.loop);
  if (!place) return no_such("loop", step.loop.to_string());
  const Loop& loop = loop_at(tree, *place);
  if (!loop.parallel)
    return Refusal{&codes::kHasState,
                   fmt::format("the turns of `{}` must run in order", to_text(tree, loop)),
                   "name a parallel loop, or take the step `chunk` for this one"};
  const auto around = loops_around(tree, *place);
  const Machine parent = around.empty() ? Machine::None : around.back()->on;
  const auto stands = [&] {
    switch (step.machine) {
      case Machine::Grid:
        return around.empty();
      case Machine::Rank:
        return parent == Machine::Grid;
      default:
        return parent == Machine::Grid || parent == Machine::Rank;
    }
  };
  if (!stands())
    return Refusal{&codes::kNesting,
                   fmt::format("`{}` does not stand where that part of the machine could take it",
                               to_text(tree, loop)),
                   "loops on grid stand around all others, on rank directly inside grid, on group "
                   "directly inside rank or grid; begin with the outermost"};
  if (step.machine == Machine::Group)
    for (const LoopLevel& level : loop.levels)
      if (auto refusal = bounds_use(tree, loop.body, level.axis)) return refusal;
  if (step.machine == Machine::Group)
    if (auto refusal = copies_without(tree, loop)) return refusal;
  if (loop.on == Machine::None) return std::nullopt;
  return Refusal{&codes::kNesting,
                 fmt::format("the turns of `{}` are already dealt to a part of the machine",
                             to_text(tree, loop)),
                 "take one step `on` for each loop"};
}

LoopTree take(LoopTree tree, const OnStep& step) {
  loop_at(tree, find_loop(tree, step.loop).value()).on = step.machine;
  return tree;
}

// --- serial -------------------------------------------------------------------------------------

std::optional<Refusal> legal(const LoopTree& tree, const SerialStep& step) {
  const auto place = find_loop(tree, step.loop);
  if (!place) return no_such("loop", step.loop.to_string());
  const Loop& loop = loop_at(tree, *place);
  if (!loop.parallel)
    return Refusal{&codes::kKindsDiffer,
                   fmt::format("`{}` is already a stream", to_text(tree, loop)),
                   "leave this step out"};
  if (auto refusal = marked(tree, loop)) return refusal;
  if (loop.on != Machine::None)
    return Refusal{&codes::kNesting,
                   fmt::format("the turns of `{}` are already dealt to parts of the machine",
                               to_text(tree, loop)),
                   "take either the step `serial` or the step `on`"};
  return std::nullopt;
}

LoopTree take(LoopTree tree, const SerialStep& step) {
  loop_at(tree, find_loop(tree, step.loop).value()).parallel = false;
  return tree;
}

// --- reverse ------------------------------------------------------------------------------------

std::optional<Refusal> legal(const LoopTree& tree, const ReverseStep& step) {
  const auto place = find_loop(tree, step.loop);
  if (!place) return no_such("loop", step.loop.to_string());
  const Loop& loop = loop_at(tree, *place);
  std::optional<Refusal> refusal;
  for_each_task(loop.body, [&](const LoopTask& task, const auto&) {
    if (task.kind == LoopTask::Kind::Scan && runs_over(loop, task.over[0]))
      refusal = Refusal{&codes::kScanOrder,
                        fmt::format("%{} is a scan along this loop", tree.values[task.target].name),
                        "leave the direction of the scan's loop as it is"};
    if (replaces_over(task, loop)) refusal = last_stays(tree, task);
  });
  if (refusal) return refusal;
  for (const LoopLevel& level : loop.levels)
    if (auto other = reads_other_turns(tree, loop.body, level.axis)) return other;
  std::vector<size_t> axes;
  for (const LoopLevel& level : loop.levels) axes.push_back(level.axis);
  return reads_what_it_writes(tree, loop.body, axes);
}

LoopTree take(LoopTree tree, const ReverseStep& step) {
  Loop& loop = loop_at(tree, find_loop(tree, step.loop).value());
  loop.down = !loop.down;
  return tree;
}

}  // namespace braze
