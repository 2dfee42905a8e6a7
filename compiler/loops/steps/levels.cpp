#include "compiler/loops/steps/levels.h"

#include <algorithm>
#include <map>
#include <utility>

#include "compiler/loops/text.h"
#include "ir/support/text.h"

namespace braze {

namespace {

std::optional<Refusal> several_levels(const LoopTree& tree, const Loop& loop) {
  if (loop.levels.size() == 1) return std::nullopt;
  return Refusal{&codes::kLevelsDiffer,
                 fmt::format("`{}` runs over several axes", to_text(tree, loop)),
                 "split its axes before they become one loop"};
}

// The level of a loop that runs over an axis.
auto& level_over(auto& loop, size_t axis) {
  return *std::ranges::find(loop.levels, axis, &LoopLevel::axis);
}

// Refuses a parallel loop whose turns have partial states that are combined.
std::optional<Refusal> combines(const LoopTree& tree, const Loop& loop) {
  std::optional<Refusal> out;
  for_each_task(loop.body, [&](const LoopTask& task, const auto&) {
    if (loop.parallel && runs_over_any(loop, task.over))
      out = Refusal{&codes::kHasState,
                    fmt::format("%{} combines the turns of `{}`", tree.values[task.target].name,
                                to_text(tree, loop)),
                    "split the loop before its parts are combined"};
  });
  return out;
}

}  // namespace

// --- split --------------------------------------------------------------------------------------

std::optional<Refusal> legal(const LoopTree& tree, const SplitStep& step) {
  const auto place = find_loop(tree, step.loop);
  if (!place) return no_such("loop", step.loop.to_string());
  const Loop& loop = loop_at(tree, *place);
  if (!loop.parallel)
    if (auto refusal = several_levels(tree, loop)) return refusal;
  if (auto refusal = marked(tree, loop)) return refusal;
  if (auto refusal = combines(tree, loop)) return refusal;
  const auto [axis, turn] = level_over(loop, *find_axis(tree, step.loop.axis));
  if (step.turn <= turn || step.turn % turn != 0)
    return Refusal{&codes::kNotConstant,
                   fmt::format("{} is not a larger multiple of {}, which `{}` takes in a turn",
                               step.turn, turn, to_text(tree, loop)),
                   fmt::format("take {} or another multiple", 2 * turn)};
  const auto around = loops_around(tree, *place);
  const Expr all = extent_in(tree, around, axis);
  if (is_cut(around, axis) && !all.is_multiple_of(step.turn))
    return Refusal{&codes::kLevelsDiffer,
                   fmt::format("{} does not divide {}, which a turn of the loop around takes of {}",
                               step.turn, all.to_string(), tree.axes[axis].name),
                   "take a divisor of that number"};
  if (loop.on == Machine::Group)
    if (auto refusal = bounds_use(tree, loop.body, axis)) return refusal;
  bool parts_inside = false;
  visit_loops(loop.body, [&](const Loop& inner) { parts_inside |= inner.on != Machine::None; });
  if (loop.on != Machine::None && parts_inside)
    return Refusal{&codes::kNesting,
                   fmt::format("`{}` has loops inside that are dealt to other parts of the machine",
                               to_text(tree, loop)),
                   "split it before they are dealt"};
  return std::nullopt;
}

LoopTree take(LoopTree tree, const SplitStep& step) {
  const ItemPlace place = find_loop(tree, step.loop).value();
  Loop& outer = loop_at(tree, place);
  LoopLevel& level = level_over(outer, *find_axis(tree, step.loop.axis));
  const Expr all = extent_in(tree, loops_around(tree, place), level.axis);
  const bool is_one = step.padded ? all.is_constant(step.turn) : is_one_turn(all, step.turn);
  if (is_one && outer.on == Machine::None) return tree;
  Loop inner;
  inner.parallel = outer.parallel;
  inner.levels = {level};
  inner.down = outer.down;
  inner.location = outer.location;
  inner.body = std::move(outer.body);
  level.turn = step.turn;
  outer.body.clear();
  outer.body.emplace_back(std::move(inner));
  return tree;
}

// --- slabs --------------------------------------------------------------------------------------

namespace {

// The items that get a loop: the task or, with `beside`, all stores side by side with it.
std::pair<size_t, size_t> slab_run(const LoopTree& tree, const ItemPlace& place, bool beside) {
  const LoopRegion& region = region_of(tree, place);
  const auto is_store = [&](size_t i) {
    const auto* task = std::get_if<LoopTask>(&region[i]);
    return task && task->kind == LoopTask::Kind::Store;
  };
  size_t first = place.items.back(), end = first + 1;
  if (!beside || !is_store(first)) return {first, end};
  while (first > 0 && is_store(first - 1)) --first;
  while (end < region.size() && is_store(end)) ++end;
  return {first, end};
}

bool touches(const LoopTask& a, const LoopTask& writer) {
  const bool writes = !a.makes_value() && a.target == writer.target;
  return writes || std::ranges::any_of(a.body.steps, [&](const LoopStep& s) {
           return s.kind == LoopStep::Kind::Load && s.source == writer.target;
         });
}

}  // namespace

std::optional<Refusal> legal(const LoopTree& tree, const SlabsStep& step) {
  const auto place = find_made(tree, step.made);
  if (!place) return no_such("task that makes", step.made.to_string());
  const auto axis = find_axis(tree, step.axis);
  if (!axis) return no_such("axis", step.axis);
  const auto around = loops_around(tree, *place);
  const LoopRegion& region = region_of(tree, *place);
  const auto [first, end] = slab_run(tree, *place, step.beside);
  for (size_t i = first; i < end; ++i) {
    const auto& task = std::get<LoopTask>(region[i]);
    const bool folds = task.kind == LoopTask::Kind::Fold && !task.rescale &&
                       task.combine == Combine::None && contains(task.over, *axis);
    const bool makes = own_axes(tree, task).contains(*axis) && !contains(task.along, *axis) &&
                       !contains(task.over, *axis);
    if (!folds && !makes)
      return Refusal{&codes::kNotAnAxis,
                     fmt::format("{} has no tile along {}", step.made.to_string(), step.axis),
                     "name an axis of what is made, or of what a fold combines"};
    if (!task.makes_value() && step.beside)
      if (auto refusal = reads_what_it_writes(tree, region, {*axis})) return refusal;
  }
  // Stores side by side see the memory as it was before all of them.
  const auto [all_first, all_end] = slab_run(tree, *place, /*beside=*/true);
  for (size_t i = all_first; i < all_end; ++i)
    for (size_t k = all_first; k < all_end; ++k) {
      const bool apart = (i < first || i >= end) != (k < first || k >= end);
      const auto &a = std::get<LoopTask>(region[i]), &b = std::get<LoopTask>(region[k]);
      if (apart && !b.makes_value() && touches(a, b))
        return Refusal{
            &codes::kMemoryOrder,
            fmt::format("{} is written and read side by side", tree.tensors[b.target].name),
            "take all stores side by side, with `beside`"};
    }
  const auto all = extent_in(tree, around, *axis).as_constant();
  if (!all)
    return Refusal{&codes::kNotConstant,
                   fmt::format("the extent of the tile along {} is not constant", step.axis),
                   "split the loop over it first"};
  if (is_cut(around, *axis) && *all % step.turn != 0)
    return Refusal{&codes::kLevelsDiffer,
                   fmt::format("{} does not divide {}, the extent of the tile along {}", step.turn,
                               *all, step.axis),
                   "take a divisor of that number"};
  return std::nullopt;
}

LoopTree take(const LoopTree& tree, const SlabsStep& step) {
  LoopTree out = tree;
  const ItemPlace place = find_made(out, step.made).value();
  const size_t axis = find_axis(out, step.axis).value();
  if (is_one_turn(extent_in(tree, loops_around(tree, place), axis), step.turn)) return out;
  const auto [first, end] = slab_run(tree, place, step.beside);
  LoopRegion& region = region_of(out, place);
  const auto begin = region.begin() + static_cast<std::ptrdiff_t>(first);
  const auto behind = region.begin() + static_cast<std::ptrdiff_t>(end);
  Loop loop;
  loop.levels = {{axis, step.turn}};
  loop.body.assign(std::make_move_iterator(begin), std::make_move_iterator(behind));
  *begin = std::move(loop);
  region.erase(begin + 1, behind);
  return out;
}

// --- whole --------------------------------------------------------------------------------------

std::optional<Refusal> legal(const LoopTree& tree, const WholeStep& step) {
  const auto place = find_loop(tree, step.loop);
  if (!place) return no_such("loop", step.loop.to_string());
  const Loop& loop = loop_at(tree, *place);
  if (auto refusal = several_levels(tree, loop)) return refusal;
  if (auto refusal = marked(tree, loop)) return refusal;
  const size_t axis = loop.levels[0].axis;
  const std::string& name = tree.axes[axis].name;
  if (loop.on != Machine::None)
    return Refusal{&codes::kNesting,
                   fmt::format("the turns of `{}` are already dealt to parts of the machine",
                               to_text(tree, loop)),
                   "split the loop, and name the inner one"};
  if (!extent_in(tree, loops_around(tree, *place), axis).as_constant())
    return Refusal{&codes::kNotConstant,
                   fmt::format("the axis {} has {} indices, which is not a constant", name,
                               tree.axes[axis].extent.to_string()),
                   fmt::format("split {} by a constant, and name the inner loop", name)};
  if (loop.bounds)
    return Refusal{&codes::kBoundsDepend,
                   fmt::format("`{}` does not run over all of {}", to_text(tree, loop), name),
                   "split the loop, and name the inner one"};
  if (auto refusal = bounds_use(tree, loop.body, axis)) return refusal;
  bool cut = false;
  visit_loops(loop.body, [&](const Loop& inner) { cut |= runs_over(inner, axis); });
  if (cut)
    return Refusal{&codes::kLevelsDiffer, fmt::format("loops over {} stand inside this loop", name),
                   "name the inner loops first"};
  std::optional<Refusal> refusal;
  for_each_task(loop.body, [&](const LoopTask& task, const auto&) {
    if (!task.makes_value() || !axes_used(tree, task).contains(axis)) return;
    if (contains(task.over, axis) || contains(tree.values[task.target].axes, axis)) return;
    refusal = Refusal{&codes::kNotAnAxis,
                      fmt::format("%{} depends on {}, but does not have that axis",
                                  tree.values[task.target].name, name),
                      "name a loop over an axis of the value"};
  });
  if (refusal) return refusal;
  if (auto other = reads_other_turns(tree, loop.body, axis)) return other;
  return reads_what_it_writes(tree, loop.body, {axis});
}

LoopTree take(LoopTree tree, const WholeStep& step) {
  const ItemPlace place = find_loop(tree, step.loop).value();
  LoopRegion& region = region_of(tree, place);
  const auto at = region.begin() + static_cast<std::ptrdiff_t>(place.items.back());
  LoopRegion body = std::move(std::get<Box<Loop>>(*at)->body);
  const auto behind = region.erase(at);
  region.insert(behind, std::make_move_iterator(body.begin()), std::make_move_iterator(body.end()));
  // A state that no loop carries any more is final at once, and needs no rescale.
  std::set<const LoopTask*> carried;
  for_each_task(tree, [&](const LoopTask& task, const std::vector<const Loop*>& around) {
    for (const Loop* loop : around)
      if (runs_over_any(*loop, task.over)) carried.insert(&task);
  });
  change_tasks(tree, [&](LoopTask& task) {
    if (carried.contains(&task)) return;
    task.rescale.reset();
    task.shifts = false;
  });
  return tree;
}

// --- collapse -----------------------------------------------------------------------------------

namespace {

// Joins two axes in the tasks of a tree.
struct Collapsing {
  const LoopTree& tree;    // before the step
  size_t a, b;             // the axes
  Expr joined;             // the index along both
  bool by_digits = false;  // whether what is read may have a and b as digits of `joined`
  bool seen_apart = false;

  bool speaks(const Expr& e) const {
    return e.uses(tree.axes[a].name) || e.uses(tree.axes[b].name);
  }
  void change(Expr& e) {
    if (!speaks(e)) return;
    const Expr &i = tree.axes[a].index(), &j = tree.axes[b].index();
    const auto of_a = e.coefficient_of(tree.axes[a].name);
    const auto of_b = e.coefficient_of(tree.axes[b].name);
    if (!of_a || !of_b || !(*of_a == *of_b * tree.axes[b].extent)) {
      const Expr& extent = tree.axes[b].extent;
      seen_apart |= !by_digits || !extent.as_constant();
      if (!seen_apart)
        e = e.substitute({{tree.axes[a].name, floordiv(joined, extent)},
                          {tree.axes[b].name, mod(joined, extent)}});
      return;
    }
    e = e - *of_a * i - *of_b * j + *of_b * joined;
    seen_apart |= speaks(e);
  }
  // Replaces coordinates that use a and b as the digits of one number. The rows of the tensor must
  // lie close together. `outside`: whether the load asks what lies outside the tensor.
  void change(std::vector<Expr>& at, const LoopTensor& tensor, bool outside = false) {
    size_t first = 0, last = at.size();
    while (first < last && !speaks(at[first])) ++first;
    while (last > first && !speaks(at[last - 1])) --last;
    if (last - first < 2) {
      for (Expr& e : at) change(e);
      return;
    }
    seen_apart |= !tensor.strides.empty();
    for (size_t d = first + 1; d < last; ++d) seen_apart |= tensor.type.shape[d].range().min < 1;
    bool leaves = false;  // so that each coordinate says whether it lies outside
    for (size_t d = first; outside && d < last; ++d)
      leaves |= !proves_in_bounds(at[d], tensor.type.shape[d]);
    seen_apart |= leaves && !by_digits;
    if (seen_apart) return;
    Expr number;
    for (size_t d = first; d < last; ++d) number = number * tensor.type.shape[d] + at[d];
    const auto of_a = number.coefficient_of(tree.axes[a].name);
    const auto of_b = number.coefficient_of(tree.axes[b].name);
    if (by_digits && (leaves || !of_a || !of_b || !(*of_a == *of_b * tree.axes[b].extent))) {
      for (Expr& e : at) change(e);
      return;
    }
    const bool may_digits = std::exchange(by_digits, false);
    change(number);
    by_digits = may_digits;
    for (size_t d = last - 1; d > first; --d) {
      at[d] = mod(number, tensor.type.shape[d]);
      number = floordiv(number, tensor.type.shape[d]);
    }
    at[first] = number;
  }
  // In a list of axes, b must follow directly after a. Then a stands for both.
  void change(std::vector<size_t>& axes) {
    const auto at = std::find(axes.begin(), axes.end(), a);
    if (at == axes.end() || std::next(at) == axes.end() || *std::next(at) != b)
      seen_apart |= at != axes.end() || contains(axes, b);
    else
      axes.erase(std::next(at));
  }
  void change(LoopBody& body) {
    for (LoopStep& s : body.steps) {
      if (seen_apart) return;
      if (s.kind == LoopStep::Kind::Read) {
        const auto& axes = tree.values[s.source].axes;
        const auto at = std::find(axes.begin(), axes.end(), a);
        if (at != axes.end()) {
          const auto i = at - axes.begin();
          const bool own = std::next(at) != axes.end() && *std::next(at) == b &&
                           s.at[static_cast<size_t>(i)] == tree.axes[a].index() &&
                           s.at[static_cast<size_t>(i) + 1] == tree.axes[b].index();
          seen_apart |= !own;
          if (!own) return;
          s.at[static_cast<size_t>(i)] = joined;
          s.at.erase(s.at.begin() + i + 1);
        }
      }
      if (s.kind == LoopStep::Kind::Load)
        change(s.at, tree.tensors[s.source], s.otherwise && s.conditions.empty());
      else
        for (Expr& e : s.at) change(e);
      for (RangeCondition& c : s.conditions)
        for (Expr* e : {&c.value, &c.min, &c.limit}) change(*e);
    }
  }
  void change(LoopTask& task) {
    const bool may_digits = std::exchange(by_digits, false);
    if (!task.makes_value()) change(task.at, tree.tensors[task.target]);
    by_digits = may_digits;
    change(task.body);
    if (task.rescale) change(*task.rescale);
    change(task.over);
    change(task.along);
  }
};

// The tree with both axes as one, or nothing if they are seen apart. Most trials end at the first
// values or tasks, so the tree is copied after these.
std::optional<LoopTree> collapsed(const LoopTree& tree, const ItemPlace& place,
                                  bool by_digits = true) {
  const Loop& outer = loop_at(tree, place);
  Collapsing out{tree, outer.levels[0].axis, only_child(outer)->levels[0].axis, {}, by_digits};
  const LoopAxis &a = tree.axes[out.a], &b = tree.axes[out.b];
  const LoopAxis both{unused_axis(tree, a.name + b.name), a.extent * b.extent};
  out.joined = both.index();
  std::vector<std::vector<size_t>> axes;
  for (const LoopValue& value : tree.values) out.change(axes.emplace_back(value.axes));
  std::vector<LoopTask> tasks;
  for_each_task(tree, [&](const LoopTask& task, const auto&) {
    if (!out.seen_apart) out.change(tasks.emplace_back(task));
  });
  if (out.seen_apart) return std::nullopt;
  LoopTree made = tree;
  for (size_t v = 0; v < axes.size(); ++v) made.values[v].axes = std::move(axes[v]);
  auto changed = tasks.begin();
  change_tasks(made, [&](LoopTask& task) { task = std::move(*changed++); });
  // The loops are joined wherever both stand as these two do. Other loops over one of the two axes,
  // and bounds, would still see two axes, and marks would be lost.
  const auto uncut = [&](const Loop& l) {
    return l.levels.size() == 1 && l.levels[0].turn == 1 && l.on == Machine::None && !l.bounds &&
           !marked(tree, l);
  };
  int joined = 0, loops = 0;
  const std::function<void(LoopRegion&)> join = [&](LoopRegion& items) {
    for (LoopItem& item : items) {
      auto* box = std::get_if<Box<Loop>>(&item);
      if (!box) continue;
      Loop& l = **box;
      const Loop* child = only_child(l);
      if (child && uncut(l) && uncut(*child) && l.levels[0].axis == out.a &&
          child->levels[0].axis == out.b && l.parallel == child->parallel &&
          l.down == child->down) {
        LoopRegion body = child->body;
        l.body = std::move(body);
        ++joined;
      }
      join(l.body);
    }
  };
  for (LoopRegion& phase : made.phases) join(phase);
  visit_loops(made, [&](const Loop& l) {
    loops += runs_over(l, out.a) || runs_over(l, out.b);
    if (l.bounds)
      for (const Expr* e : {&l.bounds->first, &l.bounds->second})
        for (const LoopAxis* axis : {&a, &b})
          out.seen_apart |= e->uses(axis->name) || e->uses(end_symbol(*axis).symbol_name());
    for (const IndexComparison& c : l.parts)
      out.seen_apart |= out.speaks(c.left) || out.speaks(c.right);
  });
  out.seen_apart |= loops != joined;
  if (out.seen_apart) return std::nullopt;
  // The joined axis takes the number of a. Axes after b get lower numbers.
  made.axes[out.a] = both;
  renumber_axes(made, [&](size_t axis) { return axis - (axis > out.b); });
  made.axes.erase(made.axes.begin() + static_cast<std::ptrdiff_t>(out.b));
  return made;
}

}  // namespace

// Why the loops cannot be joined, whatever their tasks do.
static std::optional<Refusal> refuse_loops(const LoopTree& tree, const CollapseStep& step) {
  const auto place = find_loop(tree, step.outer), child = find_loop(tree, step.inner);
  if (!place) return no_such("loop", step.outer.to_string());
  if (!child) return no_such("loop", step.inner.to_string());
  const Loop &outer = loop_at(tree, *place), &inner = loop_at(tree, *child);
  if (only_child(outer) != &inner)
    return Refusal{&codes::kBetween,
                   fmt::format("{} is not the only item in {}", step.inner.to_string(),
                               step.outer.to_string()),
                   "name a loop and the only loop inside it"};
  for (const Loop* loop : {&outer, &inner}) {
    if (auto refusal = several_levels(tree, *loop)) return refusal;
    if (auto refusal = marked(tree, *loop)) return refusal;
    if (loop->levels[0].turn != 1 || loop->on != Machine::None || loop->bounds)
      return Refusal{&codes::kLevelsDiffer,
                     fmt::format("`{}` is already split, bounded or dealt", to_text(tree, *loop)),
                     "take this step before others"};
  }
  if (outer.parallel != inner.parallel || outer.down != inner.down)
    return Refusal{&codes::kKindsDiffer,
                   fmt::format("{} and {} are loops of different kinds", step.outer.to_string(),
                               step.inner.to_string()),
                   "make both streams, or both parallel"};
  return std::nullopt;
}

// The tree after the step, if the loops may be joined and their tasks allow it.
static std::optional<LoopTree> joined_tree(const LoopTree& tree, const CollapseStep& step,
                                           bool by_digits) {
  const ItemPlace place = find_loop(tree, step.outer).value();
  const size_t outer = loop_at(tree, place).levels[0].axis;
  const size_t inner = only_child(loop_at(tree, place))->levels[0].axis;
  if (outer == inner || tree.axes[inner].extent.range().min < 1) return std::nullopt;
  return collapsed(tree, place, by_digits);
}

std::optional<Refusal> legal(const LoopTree& tree, const CollapseStep& step) {
  if (auto refusal = refuse_loops(tree, step)) return refusal;
  if (joined_tree(tree, step, /*by_digits=*/true)) return std::nullopt;
  const Loop& inner = loop_at(tree, find_loop(tree, step.inner).value());
  const Expr& extent = tree.axes[inner.levels[0].axis].extent;
  return Refusal{
      &codes::kSeenApart,
      fmt::format("{} and {} are not used everywhere as {}*{} + {}", step.outer.to_string(),
                  step.inner.to_string(), step.outer.axis, extent.to_string(), step.inner.axis),
      "leave these two axes as they are"};
}

std::optional<LoopTree> run_through(const LoopTree& tree, const CollapseStep& step) {
  if (refuse_loops(tree, step)) return std::nullopt;
  return joined_tree(tree, step, /*by_digits=*/false);
}

LoopTree take(const LoopTree& tree, const CollapseStep& step) {
  return collapsed(tree, find_loop(tree, step.outer).value()).value();
}

}  // namespace braze
