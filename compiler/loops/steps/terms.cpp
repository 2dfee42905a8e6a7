#include "compiler/loops/steps/terms.h"

#include <algorithm>

#include "compiler/loops/text.h"
#include "ir/support/text.h"

namespace braze {

// --- enclose ------------------------------------------------------------------------------------

std::optional<Refusal> legal(const LoopTree& tree, const EncloseStep& step) {
  const auto axis = find_axis(tree, step.axis);
  if (!axis) return no_such("axis", step.axis);
  if (tree.phases.size() != 1)
    return Refusal{&codes::kNesting, "the kernel has several phases",
                   "take this step before the one that made them"};
  const LoopRegion& all = tree.phases[0];
  std::optional<Refusal> refusal;
  const auto refuse = [&](const Code& code, std::string why, std::string fix) {
    if (!refusal) refusal = Refusal{&code, std::move(why), std::move(fix)};
  };
  visit_loops(all, [&](const Loop& loop) {
    if (loop.on != Machine::None)
      refuse(codes::kNesting,
             fmt::format("`{}` is already dealt to parts of the machine", to_text(tree, loop)),
             "take this step first");
    if (!runs_over(loop, *axis)) return;
    if (loop.bounds)
      refuse(codes::kBoundsDepend, fmt::format("`{}` has bounds", to_text(tree, loop)),
             "take this step before the loop has bounds");
    for (const LoopLevel& level : loop.levels)
      if (level.axis == *axis && step.turn % level.turn != 0)
        refuse(codes::kLevelsDiffer,
               fmt::format("{} is not a multiple of the turns of `{}`", step.turn,
                           to_text(tree, loop)),
               "take a multiple");
  });
  bool placed = false;
  for_each_task(all, [&](const LoopTask& task, const auto&) {
    const bool own = own_axes(tree, task).contains(*axis) || axes_used(tree, task).contains(*axis);
    const bool along = contains(task.along, *axis);
    placed |= along;
    if (along && task.along[0] != *axis)
      refuse(codes::kLevelsDiffer,
             fmt::format("{} is not the outermost digit of the places of %{}", step.axis,
                         tree.values[task.target].name),
             fmt::format("name {}", tree.axes[task.along[0]].name));
    if (contains(task.over, *axis) || !own)
      refuse(codes::kNotAnAxis,
             fmt::format("`{}` does not make the elements of each index of {} separately",
                         to_text(tree, task), step.axis),
             "name an axis of everything that the kernel makes");
  });
  if (!placed)
    refuse(codes::kNotAnAxis, fmt::format("nothing is placed along {}", step.axis),
           "split the loop over it");
  if (refusal) return refusal;
  if (auto other = reads_other_turns(tree, all, *axis)) return other;
  return reads_what_it_writes(tree, all, {*axis});
}

LoopTree take(LoopTree tree, const EncloseStep& step) {
  const size_t axis = find_axis(tree, step.axis).value();
  if (tree.axes[axis].extent.as_constant().value_or(step.turn + 1) <= step.turn) return tree;
  Loop loop;
  loop.parallel = true;
  loop.levels = {{axis, step.turn}};
  loop.body = std::move(tree.phases[0]);
  tree.phases[0].clear();
  tree.phases[0].emplace_back(std::move(loop));
  return tree;
}

// --- seek ---------------------------------------------------------------------------------------

std::optional<Refusal> legal(const LoopTree& tree, const SeekStep& step) {
  const auto place = find_loop(tree, step.loop);
  if (!place) return no_such("loop", step.loop.to_string());
  const Loop& loop = loop_at(tree, *place);
  const LoopTask* placed = nullptr;
  size_t tasks = 0;
  for_each_task(loop.body, [&](const LoopTask& task, const auto&) {
    ++tasks;
    if (task.kind == LoopTask::Kind::Place) placed = &task;
  });
  const bool takes_terms = placed && tasks == 1 && !loop.parallel && loop.levels.size() == 1 &&
                           loop.levels[0].turn == 1 && contains(placed->over, loop.levels[0].axis);
  if (!takes_terms)
    return Refusal{&codes::kIsState,
                   fmt::format("`{}` must take the terms of one placed reduction and nothing else, "
                               "one in a turn",
                               to_text(tree, loop)),
                   "name the innermost loop over terms"};
  if (loop.bounds || loop.down)
    return Refusal{&codes::kBoundsDepend,
                   fmt::format("`{}` has bounds, or runs backwards", to_text(tree, loop)),
                   "name a loop over all terms, or all of a turn"};
  return marked(tree, loop);
}

LoopTree take(LoopTree tree, const SeekStep& step) {
  loop_at(tree, find_loop(tree, step.loop).value()).seek = true;
  return tree;
}

}  // namespace braze
