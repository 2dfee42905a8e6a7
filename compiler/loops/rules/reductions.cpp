// reductions.cpp — facts about reductions that the rules for all machines share.
#include "compiler/loops/rules/reductions.h"

#include <algorithm>
#include <map>
#include <set>

namespace braze {

namespace {

bool is_served(const LoopTask& task) {
  return task.kind == LoopTask::Kind::Fold || task.kind == LoopTask::Kind::Dot ||
         task.kind == LoopTask::Kind::Arg || task.kind == LoopTask::Kind::Store;
}

std::optional<Walk> as_walk(const Loop& outermost) {
  Walk out;
  for (const Loop* loop = &outermost;;) {
    if (loop->levels.size() != 1 || loop->down) return std::nullopt;
    out.axes.push_back(loop->levels[0].axis);
    if (const Loop* child = only_child(*loop)) {
      loop = child;
      continue;
    }
    for (const LoopItem& item : loop->body) {
      const auto* task = std::get_if<LoopTask>(&item);
      if (!task || !is_served(*task)) return std::nullopt;
      out.tasks.push_back(task);
    }
    return out;
  }
}

// For each value: the tasks that read it.
std::map<size_t, std::vector<const LoopTask*>> readers_of_values(const LoopRegion& region) {
  std::map<size_t, std::vector<const LoopTask*>> out;
  for_each_task(region, [&](const LoopTask& task, const auto&) {
    for (const LoopStep& s : task.body.steps)
      if (s.kind == LoopStep::Kind::Read) out[s.source].push_back(&task);
  });
  return out;
}

// Whether a task outside the walk reads a value that each turn of the walk makes anew.
bool is_read_elsewhere(const LoopTree& tree, const Walk& walk,
                       const std::map<size_t, std::vector<const LoopTask*>>& readers) {
  return std::ranges::any_of(walk.tasks, [&](const LoopTask* task) {
    const auto known = task->makes_value() ? readers.find(task->target) : readers.end();
    return known != readers.end() &&
           std::ranges::any_of(
               tree.values[task->target].axes,
               [&](size_t axis) { return std::ranges::count(walk.axes, axis) > 0; }) &&
           std::ranges::any_of(known->second, [&](const LoopTask* reader) {
             return std::ranges::count(walk.tasks, reader) == 0;
           });
  });
}

// Whether something reads an input after the store that overwrites its memory. Reads must stand
// before that store or beside it.
bool reads_what_is_overwritten(const LoopRegion& region) {
  std::set<size_t> written;
  size_t noted = 0;  // the items whose stores are
  bool out = false;
  const auto note = [&](const LoopItem& item, const auto& each) {
    if (const auto* task = std::get_if<LoopTask>(&item)) return each(*task);
    for_each_task(as_loop(item)->body, [&](const LoopTask& task, const auto&) { each(task); });
  };
  for (size_t i = 0; i < region.size(); ++i) {
    note(region[i], [&](const LoopTask& task) {
      for (const LoopStep& s : task.body.steps)
        out |= s.kind == LoopStep::Kind::Load && written.contains(s.source);
    });
    // If stores stand side by side, all values are computed before the first store.
    const bool more = !as_loop(region[i]) && i + 1 < region.size() && !as_loop(region[i + 1]);
    if (more) continue;
    for (; noted <= i; ++noted)
      note(region[noted], [&](const LoopTask& task) {
        if (!task.makes_value()) written.insert(task.target);
      });
  }
  return out;
}

}  // namespace

std::optional<ReductionNest> reduction_nest(const LoopTree& tree) {
  ReductionNest out;
  if (tree.phases.size() != 1) return std::nullopt;
  const LoopRegion* region = &tree.phases[0];
  while (region->size() == 1) {
    const Loop* loop = as_loop(region->front());
    if (!loop || !loop->parallel || loop->levels.size() != 1) break;
    out.lines.push_back(loop->levels[0].axis);
    region = &loop->body;
  }
  out.begins_with_walk = !region->empty() && as_loop(region->front());
  if (reads_what_is_overwritten(*region)) return std::nullopt;
  const auto readers = readers_of_values(tree.phases[0]);
  for (const LoopItem& item : *region) {
    if (const auto* task = std::get_if<LoopTask>(&item)) {
      if (!is_served(*task)) return std::nullopt;
      out.beside.push_back(task);
      continue;
    }
    auto walk = as_walk(*as_loop(item));
    if (!walk || is_read_elsewhere(tree, *walk, readers)) return std::nullopt;
    out.walks.push_back(std::move(*walk));
  }
  // An axis that is innermost in one walk must be innermost in every walk that has it.
  std::set<size_t> innermost;
  for (const Walk& walk : out.walks) innermost.insert(walk.along());
  for (const Walk& walk : out.walks)
    for (const size_t axis : walk.axes)
      if (axis != walk.along() && innermost.contains(axis)) return std::nullopt;
  return out;
}

std::optional<ReductionNest> collapsed_reductions(Scheduled& out) {
  auto nest = reduction_nest(out.tree);
  if (!nest || nest->walks.empty()) return std::nullopt;
  collapse_axes(out, nest->lines);
  nest = reduction_nest(out.tree);
  for (size_t w = 0; w < nest->walks.size(); ++w) {
    const size_t steps = out.steps.size();
    collapse_axes(out, nest->walks[w].axes);
    if (out.steps.size() > steps) nest = reduction_nest(out.tree);
  }
  return nest;
}

Refusal unserved_reduction(const LoopTree& tree) {
  return no_rule(has_kind(tree, LoopTask::Kind::Dot)
                     ? "no rule can choose the steps for products"
                     : "no rule can choose the steps for loops that do not run along rows or "
                       "columns");
}

WalkFacts facts_of(const LoopTree& tree, const ReductionNest& nest) {
  constexpr int64_t kMost = int64_t{1} << 40;
  const auto product = [&](const std::vector<size_t>& axes) {
    int64_t n = 1;
    for (const size_t axis : axes) n = std::min(n * planned_extent(tree, axis), kMost);
    return n;
  };
  WalkFacts out;
  out.lines = product(nest.lines);
  // The longest walk determines the axis.
  const Walk& main = *std::max_element(
      nest.walks.begin(), nest.walks.end(),
      [&](const Walk& a, const Walk& b) { return product(a.axes) < product(b.axes); });
  out.along = main.along();
  out.length = planned_extent(tree, out.along);
  out.elements = product(main.axes);
  for (const Walk& walk : nest.walks) {
    if (walk.along() != out.along) continue;
    ++out.walks;
    out.tasks.insert(out.tasks.end(), walk.tasks.begin(), walk.tasks.end());
  }
  out.touched = accesses(tree, out.tasks);
  out.one_pass = nest.walks.size() == 1 && nest.begins_with_walk;
  return out;
}

void cut_walks(Scheduled& out, const std::string& axis, int64_t turn) {
  const int64_t walks = count_loops(out.tree, axis);
  const bool covered = axis_of(out.tree, axis).extent.is_constant(turn);
  for (int64_t n = 1, done = 0; done < walks; ++done) {
    if (!covered) out.take(SplitStep{{axis, n}, turn, /*padded=*/true});
    out.take(WholeStep{{axis, covered ? n : n + 1}});
    n += !covered;
  }
}

void deal_lines(Scheduled& out, const std::vector<std::string>& lines,
                const std::vector<std::pair<std::string, int64_t>>& tiled) {
  std::vector<std::string> outer;
  for (const std::string& line : lines) {
    const auto tile = std::find_if(tiled.begin(), tiled.end(),
                                   [&](const auto& named) { return named.first == line; });
    if (tile == tiled.end() || tile->second == 1) {
      outer.push_back(line);
      continue;
    }
    const bool covered = axis_of(out.tree, line).extent.is_constant(tile->second);
    if (!covered) out.take(SplitStep{{line}, tile->second, /*padded=*/true});
    out.take(WholeStep{{line, covered ? 1 : 2}});
    if (!covered) outer.push_back(line);
  }
  deal_out(out, outer);
}

void part_walks(Scheduled& out, std::string axis, int64_t turn) {
  // A walk of few turns has little to leave out, and would wait for the integer.
  constexpr int64_t kFewTurns = 4;
  const size_t number = *find_axis(out.tree, axis);
  if (planned_extent(out.tree, number) > kFewTurns * turn)
    for (int64_t n = 1; find_loop(out.tree, {axis, n}); ++n) {
      // A phase that looks for the first and last turn takes longer than what it leaves out.
      const LimitStep step{{axis, n}};
      if (legal(out.tree, step)) continue;
      LoopTree limited = take(out.tree, step);
      if (limited.phases.size() == out.tree.phases.size()) out.accept(step, std::move(limited));
    }
  const LoopAxis& own = out.tree.axes[number];
  if (own.extent.is_multiple_of(turn) || own.extent.range().max <= turn) return;
  const IndexComparison inside = before_end(own);
  for (int64_t n = 1; find_loop(out.tree, {axis, n}); ++n)
    out.try_take(PartStep{{axis, n}, inside});
}

namespace {

size_t count_shifts(const LoopTree& tree) {
  size_t out = 0;
  for_each_task(tree, [&](const LoopTask& task, const auto&) { out += task.shifts; });
  return out;
}

// The folds whose state is multiplied when what they depend on changes.
size_t count_rescales(const LoopTree& tree) {
  size_t out = 0;
  for_each_task(tree, [&](const LoopTask& task, const auto&) {
    out += task.rescale.has_value() && !task.shifts;
  });
  return out;
}

}  // namespace

size_t merge_walks(Scheduled& out, std::string axis, bool means, bool rescales) {
  size_t merges = 0;
  for (int64_t n = 1; find_loop(out.tree, {axis, n + 1});) {
    const MergeStep step{{axis, n}, {axis, n + 1}};
    std::optional<LoopTree> merged;  // many walks can be neighbours, and few of them are merged
    if (!legal(out.tree, step)) merged = take(out.tree, step);
    if (merged && (means || count_shifts(*merged) == count_shifts(out.tree)) &&
        (rescales || count_rescales(*merged) == count_rescales(out.tree))) {
      out.accept(step, *std::move(merged));
      ++merges;
    } else {
      ++n;
    }
  }
  return merges;
}

bool follows_means(const Scheduled& scheduled, const ReductionNest& nest, const std::string& axis) {
  Scheduled merged = scheduled;
  const size_t merges = merge_walks(merged, axis, /*means=*/true);
  return nest.begins_with_walk && merges + 1 == nest.walks.size() && count_shifts(merged.tree) > 0;
}

void chunk_by_phase(Scheduled& out, const std::string& axis, int64_t chunks) {
  out.try_take(ChunkStep{{axis}, chunks, Combine::Phase});
}

bool reads_far(const LoopTree& tree, const WalkFacts& facts, int64_t lines, int64_t instances,
               const Target& target) {
  int64_t bytes = 0;
  for (const TreeAccess& access : facts.touched)
    if (!access.store && access.offset.uses(tree.axes[facts.along].name))
      bytes += static_cast<int64_t>(access.bytes);
  return bytes * instances * lines > target.l2_bytes / facts.elements;
}

}  // namespace braze
