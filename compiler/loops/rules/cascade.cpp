#include "compiler/loops/rules/cascade.h"

#include <algorithm>

#include "compiler/loops/cost.h"
#include "compiler/loops/rules/asynchronous.h"
#include "compiler/loops/rules/facts.h"

namespace braze {

namespace {

LoopName name_of(const LoopTree& tree, const Loop& loop) {
  const size_t axis = loop.levels[0].axis;
  LoopName out{tree.axes[axis].name, 0};
  bool found = false;
  visit_loops(tree, [&](const Loop& other) {
    if (!found && runs_over(other, axis)) ++out.number;
    found = found || &other == &loop;
  });
  return out;
}

}  // namespace

std::variant<Cascade, Refusal> find_cascade(const LoopTree& tree, bool may_be_one_row) {
  Cascade out;
  if (tree.phases.size() != 1) return no_rule("a cascade of dots must have one phase");
  const LoopRegion* region = &tree.phases[0];
  while (region->size() == 1) {
    const auto* loop = std::get_if<Box<Loop>>(&region->front());
    if (!loop || !(*loop)->parallel || (*loop)->levels.size() != 1) break;
    out.nest.push_back((*loop)->levels[0].axis);
    region = &(*loop)->body;
  }
  std::vector<const LoopTask*> dots, sums;
  for_each_task(*region, [&](const LoopTask& task, const auto&) {
    if (task.kind == LoopTask::Kind::Dot) dots.push_back(&task);
    if (task.kind == LoopTask::Kind::Dot || task.kind == LoopTask::Kind::Fold)
      sums.push_back(&task);
  });
  if (dots.empty()) return no_rule("there is no dot");
  // The walk goes along the axis of the first dot's result over which the last such sum runs.
  const auto& made = tree.values[dots.front()->target].axes;
  std::optional<size_t> walk;
  for (const LoopTask* sum : sums)
    for (const size_t axis : sum->over)
      if (contains(made, axis)) walk = axis;
  if (!walk) return no_rule("no sum runs along an axis of the first dot's result");
  out.walk = *walk;
  // The rows are the longest parallel axis that each dot has in exactly one of its factors; among
  // equals, the innermost.
  std::optional<size_t> rows;
  const auto has_rows = [&](const LoopTask& dot, size_t factor, size_t axis) {
    return axes_of_factor(tree, dot, factor).contains(axis);
  };
  for (const size_t axis : out.nest) {
    const bool fits = std::ranges::all_of(dots, [&](const LoopTask* dot) {
      return contains(tree.values[dot->target].axes, axis) &&
             has_rows(*dot, 0, axis) != has_rows(*dot, 1, axis);
    });
    if (fits && (!rows || planned_extent(tree, axis) >= planned_extent(tree, *rows))) rows = axis;
  }
  if (!rows && !may_be_one_row) return no_rule("the dots have no parallel axis of rows in common");
  out.rows = rows;
  for (const LoopTask* dot : dots)
    out.dots.push_back({dot, !rows || has_rows(*dot, 0, *rows) ? size_t{0} : size_t{1}});
  for (const size_t axis : made)
    if (axis != rows && axis != out.walk && !contains(out.nest, axis)) out.around.insert(axis);
  return out;
}

void make_whole(Scheduled& out, const std::set<size_t>& but, const std::set<size_t>& but_streams) {
  for (bool again = true; again;) {
    again = false;
    std::vector<LoopName> loops;
    visit_loops(out.tree.phases[0], [&](const Loop& loop) {
      const size_t axis = loop.levels[0].axis;
      if (loop.levels.size() == 1 && loop.on == Machine::None && !but.contains(axis) &&
          (loop.parallel || !but_streams.contains(axis)))
        loops.push_back(name_of(out.tree, loop));
    });
    for (const LoopName& loop : loops)
      if (out.try_take(WholeStep{loop})) {
        again = true;
        break;
      }
  }
}

std::optional<Refusal> join_walk(Scheduled& out, size_t walk, int64_t turn) {
  const std::string name = out.tree.axes[walk].name;
  const auto loops = [&] {
    int64_t count = 0;
    visit_loops(out.tree.phases[0], [&](const Loop& l) { count += runs_over(l, walk); });
    return count;
  };
  for (int64_t n = 1; n <= loops(); ++n) {
    const int64_t before = loops();
    if (auto refusal = take_legal(out, SplitStep{{name, n}, turn, /*padded=*/true})) return refusal;
    if (loops() == before) return no_rule("the loop has one turn only");
    if (auto refusal = take_legal(out, WholeStep{{name, n + 1}})) return refusal;
  }
  while (loops() > 1)
    if (auto refusal = take_legal(out, MergeStep{{name, 1}, {name, 2}})) return refusal;
  return std::nullopt;
}

void limit_walk(Scheduled& out, size_t walk) {
  const LimitStep step{{out.tree.axes[walk].name}};
  const auto place = find_loop(out.tree, step.loop);
  if (place && loop_at(out.tree, *place).limit) return;
  auto refusal = refuse_loaded_limit(out.tree, step);
  if (!refusal)
    out.take(step);
  else if (refusal->code != &codes::kNoLimit)
    out.unlimited = std::move(refusal);
}

namespace {

constexpr int64_t kFewTurns = 2;
constexpr int64_t kUnrolled = 16;  // so that loads overlap

// Lets an earlier phase find the first and the last turn in which comparisons of integers from
// memory may hold, if there are enough turns to leave some of them out. This takes one phase, where
// a list takes several.
bool find_walk(Scheduled& out, size_t walk, int64_t turn, const std::optional<WalkRanges>& ranges) {
  if (!ranges || planned_extent(out.tree, walk) <= kFewTurns * turn) return false;
  if (!out.try_take(LimitStep{{out.tree.axes[walk].name}})) return false;
  // The phase has loops over what turns of rows take, and one over the turns of the walk.
  const auto name = [&](const Loop& loop) { return out.tree.axes[loop.levels[0].axis].name; };
  const Loop& grid = *std::get<Box<Loop>>(out.tree.phases[0].front());
  std::vector<std::string> rows;
  std::string inner;
  for (const LoopItem& item : grid.body)
    if (const auto* loop = std::get_if<Box<Loop>>(&item)) {
      rows.push_back(name(**loop));
      const auto* first = std::get_if<Box<Loop>>(&(*loop)->body.front());
      inner = first ? name(**first) : "";
    }
  const std::string turns = rows.back();
  rows.pop_back();
  const auto at_once = [&](const std::string& axis, int64_t number) {
    if (number == 1) return;
    out.try_take(SplitStep{{axis}, number, /*padded=*/true});
    if (!out.try_take(WholeStep{{axis, 2}})) out.try_take(WholeStep{{axis}});
  };
  out.try_take(OnStep{{name(grid)}, Machine::Grid});
  if (ranges->turns > 1)
    for (const std::string& axis : rows) out.try_take(WholeStep{{axis}});
  if (!inner.empty()) {
    at_once(inner, std::min(ranges->indices, turn));
    if (ranges->indices == 1) out.try_take(UnrollStep{{inner}, std::min(kUnrolled, turn)});
  }
  at_once(turns, ranges->turns);
  return true;
}

// Lets earlier phases list the turns in which conditions may hold, if there are enough turns to
// leave some of them out.
bool pick_walk(Scheduled& out, size_t walk, int64_t turn, const std::optional<WalkRanges>& ranges) {
  const PickStep step{{out.tree.axes[walk].name}};
  if (!ranges || !ranges->picks || planned_extent(out.tree, walk) <= kFewTurns * turn ||
      legal(out.tree, step) || !needs_phases(out.tree, step))
    return false;
  out.take(step);
  size_t tile = 0;  // the axis of the turns
  visit_loops(out.tree.phases.back(), [&](const Loop& loop) {
    if (loop.picks) tile = out.tree.values[loop.picks->value].axes.back();
  });
  const auto at_once = [&](const LoopName& loop, int64_t number) {
    if (number == 1) return;
    const int64_t before = count_loops(out.tree, loop.axis);
    out.try_take(SplitStep{loop, number, /*padded=*/true});
    const bool is_one = count_loops(out.tree, loop.axis) == before;  // a loop of one turn is none
    out.try_take(WholeStep{{loop.axis, loop.number + (is_one ? 0 : 1)}});
  };
  for (size_t phase = 0; phase + 1 < out.tree.phases.size(); ++phase) {
    std::vector<LoopName> loops;
    visit_loops(out.tree.phases[phase],
                [&](const Loop& loop) { loops.push_back(name_of(out.tree, loop)); });
    // The last come first, so that no step changes the name of a loop that follows.
    for (size_t i = loops.size(); i-- > 1;) {
      const size_t axis = *find_axis(out.tree, loops[i].axis);
      const bool in_grid = find_loop(out.tree, loops[i])->items.size() == 2;
      if (axis == tile) {
        at_once(loops[i], ranges->turns);
      } else if (in_grid) {  // over rows
        if (ranges->turns > 1) out.try_take(WholeStep{loops[i]});
      } else {
        at_once(loops[i], std::min(ranges->indices, turn));
        if (ranges->indices == 1) out.try_take(UnrollStep{loops[i], std::min(kUnrolled, turn)});
      }
    }
    out.try_take(OnStep{loops[0], Machine::Grid});
  }
  return true;
}

}  // namespace

void part_walk(Scheduled& out, size_t walk, int64_t turn, std::optional<WalkRanges> ranges) {
  if (pick_walk(out, walk, turn, ranges)) return;
  const LoopName loop{out.tree.axes[walk].name, 1};
  std::vector<IndexComparison> conditions;
  for_each_task(out.tree.phases[0], [&](const LoopTask& task, const auto&) {
    for (const LoopStep& s : task.body.steps)
      if (const auto c = comparison_of_indices(task.body, s);
          c && (c->left - c->right).uses(loop.axis) &&
          std::ranges::find(conditions, *c) == conditions.end())
        conditions.push_back(*c);
  });
  // Whether the condition, in a loop that runs down, becomes true in some turn and stays true.
  const auto falls = [&](const IndexComparison& c) {
    using Kind = IndexComparison::Kind;
    const auto slope = (c.left - c.right).coefficient_of(loop.axis);
    if (!slope || !slope->as_constant()) return false;
    return (*slope->as_constant() > 0) == (c.kind == Kind::Lt || c.kind == Kind::Le);
  };
  std::optional<IndexComparison> cut, other;  // `other` is decided in other turns than `cut`
  for (const IndexComparison& c : conditions) {
    if (!out.try_take(SkipStep{loop, c})) continue;
    if (cut && falls(c) != falls(*cut)) other = falls(c) ? *cut : c;
    if (!cut || falls(c)) cut = c;
  }
  limit_walk(out, walk);
  // The turns in the middle, in which everything is decided, come last.
  const bool finds = find_walk(out, walk, turn, ranges);
  if (finds || other) {
    for (const auto& condition : {cut, other})
      if (condition) out.try_take(PartStep{loop, *condition});
    return;
  }
  const LoopAxis& walked = out.tree.axes[walk];
  if (!cut && !walked.extent.is_multiple_of(turn)) cut = before_end(walked);
  if (!cut) return;
  if (falls(*cut)) out.try_take(ReverseStep{loop});
  out.try_take(PartStep{loop, *cut});
}

std::optional<Refusal> take_with_picks(
    Scheduled& out, const Target& target,
    const std::function<std::optional<Refusal>(Scheduled&, bool picks)>& take) {
  Scheduled picked = out;
  const auto refusal = take(picked, true);
  bool picks = false;
  visit_loops(picked.tree.phases.back(),
              [&](const Loop& loop) { picks |= loop.picks.has_value(); });
  if (!picks) {
    out = std::move(picked);
    return refusal;
  }
  auto refused = take(out, false);
  if (refusal) return refused;
  // Nobody knows how many turns the list leaves out.
  constexpr double kMostShare = 0.25;
  LoopTree lists = picked.tree;
  lists.phases.pop_back();
  if (refused || cost_of(lists, target).seconds <= kMostShare * cost_of(out.tree, target).seconds) {
    out = std::move(picked);
    return std::nullopt;
  }
  return refused;
}

void draw_factors(Scheduled& out) {
  std::vector<std::string> values;
  for_each_task(out.tree.phases[0], [&](const LoopTask& task, const auto&) {
    if (task.kind == LoopTask::Kind::Fold || task.kind == LoopTask::Kind::Dot)
      values.push_back(out.tree.values[task.target].name);
  });
  for (const std::string& value : values)
    while (out.try_take(DrawStep{value})) {
    }
}

std::optional<Refusal> collect_inner(const LoopTree& tree, const Cascade& cascade,
                                     std::map<size_t, int64_t>& out) {
  for (const CascadeDot& dot : cascade.dots) {
    std::vector<size_t> own;
    const bool walks = contains(dot.task->over, cascade.walk);
    for (const size_t axis : walks ? tree.values[dot.task->target].axes : dot.task->over)
      if (axis != cascade.walk && !contains(cascade.nest, axis)) own.push_back(axis);
    if (own.size() != 1 || (walks && dot.task->over.size() > 1))
      return no_rule("a dot of the cascade has not one axis beside the walk and the rows");
    const auto extent = tree.axes[own[0]].extent.as_constant();
    if (!extent || *extent == 0)
      return no_rule("an axis inside the walk has no constant extent, or is empty");
    out.emplace(own[0], *extent);
  }
  bool others = false;
  for_each_task(tree.phases[0], [&](const LoopTask& task, const auto&) {
    const std::set<size_t> axes = tile_axes(tree, task);
    for (const size_t axis : axes)
      others |= axis != cascade.walk && !contains(cascade.nest, axis) && !out.contains(axis);
  });
  if (others) return no_rule("a task beside the dots has an axis that no dot has");
  return std::nullopt;
}

void join_sums(Scheduled& out, const Cascade& cascade) {
  std::vector<std::vector<std::string>> sums;
  for (const CascadeDot& dot : cascade.dots)
    if (!contains(dot.task->over, cascade.walk)) sums.push_back(names_of(out.tree, dot.task->over));
  // From the inside outwards: the joined axis is the inner one of the next pair.
  for (const std::vector<std::string>& names : sums)
    for (size_t i = names.size(); i-- > 1;)
      if (!out.try_take(CollapseStep{{names[i - 1]}, {names[i]}})) break;
}

std::variant<Cascade, Refusal> joined_cascade(Scheduled& out, LoopTree& tree) {
  tree = out.tree;
  auto found = find_cascade(tree, /*may_be_one_row=*/true);
  if (std::holds_alternative<Refusal>(found)) return found;
  join_sums(out, std::get<Cascade>(found));
  draw_factors(out);
  tree = out.tree;
  found = find_cascade(tree, /*may_be_one_row=*/true);
  const auto* cascade = std::get_if<Cascade>(&found);
  if (cascade && !cascade->around.empty())
    return no_rule("the results of the first dots have a further axis that is summed");
  return found;
}

int64_t walked_bytes(const LoopTree& tree, const Cascade& cascade,
                     const std::map<size_t, int64_t>& inner) {
  int64_t out = 0;
  for (const CascadeDot& dot : cascade.dots)
    for (const TreeAccess& access : accesses(tree, *dot.task)) {
      if (access.store || !access.offset.uses(tree.axes[cascade.walk].name)) continue;
      auto bytes = static_cast<int64_t>(access.bytes);
      for (const auto& [axis, extent] : inner)
        if (access.offset.uses(tree.axes[axis].name)) bytes *= extent;
      out += bytes;
    }
  return out;
}

}  // namespace braze
