// reductions_cpu.cpp — the rule for reductions on a CPU: over rows (vectors run along the reduced
// axis and are folded at the end) and over columns (vectors run along another axis, and the reduced
// axes are walked in order).
#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "compiler/loops/rules/partial_sums.h"
#include "compiler/loops/rules/reductions.h"

namespace braze {

namespace {

constexpr int64_t kTaskElements = 16'384;
constexpr int64_t kTasksOfCore = 4;
// A reduction with few results is cut into chunks. Their number is part of the schedule and does
// not depend on the machine, because it determines the order of the sum. There are many, because a
// sum of sums is more exact than one long sum.
constexpr int64_t kFewTasks = 8;
constexpr int64_t kMostChunks = 256;
constexpr int64_t kChunkElements = 16'384;
// The number of rows of widest tiles that a turn takes, each with sums of its own. If tiles are
// narrower, a turn takes more rows, so that as many sums are in flight.
constexpr int64_t kRowsOfTurn = 2;
// A value is worth keeping if it takes this many operations and loads: more than a store and a
// load.
constexpr int64_t kWorthKeeping = 5;
constexpr int64_t kMostBytes = int64_t{1} << 40;
// A walk over so few terms is written out, if all walks together have at most `kMostTerms`.
constexpr int64_t kFewTerms = 8, kMostTerms = 32;
// What a walk reads is still in the cache for the next one if it fills half of it.
constexpr int64_t kShareOfCache = 2;
// The sums of neighbouring lines may fill this part of the registers beside the terms.
constexpr int64_t kShareOfRegisters = 2;
// A task can hold this many vectors of partial results when it adds those of all chunks.
constexpr int64_t kMostPartVectors = 256;

// The greatest divisor of the axis's extent that is at most `most`; 1 if the extent is not known.
int64_t divisor_at_most(const LoopTree& tree, size_t axis, int64_t most) {
  const auto extent = tree.axes[axis].extent.as_constant();
  if (!extent || *extent < 1) return 1;
  int64_t out = std::min(*extent, most);
  while (out > 1 && *extent % out != 0) --out;
  return std::max<int64_t>(out, 1);
}

// Makes `count` neighbours along a line a dimension of the tiles. `lines` are the loops that remain
// to be dealt.
bool take_neighbours(Scheduled& out, const std::string& line, int64_t count,
                     std::vector<std::string>& lines) {
  Scheduled next = out;
  const bool all = axis_of(out.tree, line).extent.is_constant(count);
  if (!all && !next.try_take(SplitStep{{line}, count})) return false;
  if (!next.try_take(WholeStep{{line, all ? 1 : 2}})) return false;
  if (all) std::erase(lines, line);
  out = std::move(next);
  return true;
}

// Whether a walk is cut into chunks if it is the only one: there are too few tasks, and each is
// long.
bool cuts_walk(const ReductionNest& nest, int64_t tasks, int64_t per_task) {
  return nest.begins_with_walk && tasks < kFewTasks && per_task >= 2 * kChunkElements;
}

// `vectors` hold the sums of a task.
void chunk_walk(Scheduled& out, const ReductionNest& nest, size_t walks, int64_t tasks,
                int64_t per_task, int64_t vectors) {
  if (walks != 1 || !cuts_walk(nest, tasks, per_task)) return;
  const std::vector<size_t>& axes = nest.walks[0].axes;
  const int64_t wanted = std::min(per_task / kChunkElements, kMostChunks);
  size_t outermost = axes[0];
  // A walk with few outermost turns is cut along the next axis, which comes first then.
  const auto turns = [&](size_t axis) { return planned_extent(out.tree, axis); };
  const auto name = [&](size_t axis) { return out.tree.axes[axis].name; };
  Scheduled next = out;
  if (axes.size() > 2 && turns(axes[0]) < std::min(wanted, turns(axes[1])) &&
      next.try_take(ReorderStep{{name(axes[0])}, {name(axes[1])}}))
    outermost = axes[1];
  const int64_t most = std::max<int64_t>(kMostPartVectors / vectors, 1);
  const int64_t chunks = std::min({wanted, turns(outermost), most});
  if (chunks <= 1) return;
  const size_t phases = next.tree.phases.size();
  chunk_by_phase(next, name(outermost), chunks);
  if (next.tree.phases.size() == phases) return;
  out = std::move(next);
}

// Merges the walks along an axis. What is read again from a cache takes less time than to rescale a
// sum with each turn, which takes a second power of two for each element: without it, log-sum-exp
// of rows in the second-level cache took two thirds of the time. But a walk must be the only one to
// be cut into chunks.
size_t merge_near(Scheduled& out, const std::string& axis, bool far, bool cuts) {
  return merge_walks(out, axis, /*means=*/far, /*rescales=*/far || cuts);
}

// Makes the axis the last one, because vectors lie along the last axis.
void put_last(Scheduled& out, const std::string& axis) {
  if (*find_axis(out.tree, axis) + 1 < out.tree.axes.size()) out.take(LastStep{axis});
}

// Values that several walks compute alike are computed once. They are kept on chip if they leave
// room in the cache. A tile has `tile` elements of the axis `lane`.
void share_values(Scheduled& out, const ReductionNest& nest, const std::string& lane, int64_t tile,
                  const Target& target) {
  std::set<std::string> lines, walked;
  for (const size_t line : nest.lines) lines.insert(out.tree.axes[line].name);
  for (const Walk& walk : nest.walks) walked.insert(out.tree.axes[walk.axes[0]].name);
  const auto bytes = [&](const LoopTree& tree, const LoopValue& value) {
    auto all = static_cast<int64_t>(size_of(value.dtype));
    for (const size_t axis : value.axes) {
      const std::string& name = tree.axes[axis].name;
      const int64_t own = name == lane           ? tile
                          : lines.contains(name) ? 1
                                                 : planned_extent(tree, axis);
      all = std::min(all * own, kMostBytes);
    }
    return all;
  };
  std::vector<ShareStep> steps;
  for (const std::string& axis : walked) {
    const int64_t loops = count_loops(out.tree, axis);
    for (int64_t n = 1; n <= loops; ++n) steps.push_back({{axis, n}, kWorthKeeping});
  }
  steps = legal_ones(out.tree, std::move(steps));
  if (steps.empty()) return;
  put_last(out, lane);  // the kept values need it, too
  for (const ShareStep& step : steps)
    for (Scheduled next = out; next.try_take(step); next = out) {
      if (next.tree.values.size() > out.tree.values.size()) {
        const LoopValue& value = next.tree.values.back();
        if (bytes(next.tree, value) > target.l2_bytes / 4) break;
        next.take(KeepStep{value.name, Storage::Chip});
      }
      out = std::move(next);
    }
}

// Whether what the walks read of one line is followed by what they read of the next one.
bool adjoin(const LoopTree& tree, size_t line, const WalkFacts& facts) {
  bool any = false;
  for (const TreeAccess& access : facts.touched) {
    const int64_t apart = access.stride(tree.axes[line]);
    if (access.stride(tree.axes[facts.along]) == 0 || apart == 0) continue;
    if (access.stride(tree.axes[facts.along]) != 1 || apart != planned_extent(tree, facts.along))
      return false;
    any = true;
  }
  return any;
}

void tile_rows(Scheduled& out, const ReductionNest& nest, const WalkFacts& facts, int64_t wide,
               const Target& target) {
  const std::string along = out.tree.axes[facts.along].name;
  int64_t tile = target.vector_lanes(4);
  while (tile < wide && tile < facts.length) tile *= 2;
  tile = std::min(tile, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(facts.length))));
  std::vector<std::string> lines;
  for (const size_t line : nest.lines) lines.push_back(out.tree.axes[line].name);
  std::set<std::string> others;
  for (const Walk& walk : nest.walks)
    if (walk.along() != facts.along) others.insert(out.tree.axes[walk.along()].name);
  // If runs along the axis are shorter than tiles could be, and those of neighbouring lines adjoin,
  // a task walks along several lines at the same time. It reads whole memory lines, and has more
  // sums in flight.
  int64_t neighbours = 1;
  if (!lines.empty() && facts.elements > facts.length &&
      adjoin(out.tree, nest.lines.back(), facts)) {
    const int64_t most = std::min(wide / tile, facts.lines / (kTasksOfCore * target.cores));
    const int64_t count = divisor_at_most(out.tree, nest.lines.back(), most);
    if (count > 1 && take_neighbours(out, lines.back(), count, lines)) neighbours = count;
  }
  int64_t rows = 1;
  if (!lines.empty() && neighbours == 1)
    rows = std::min(
        std::clamp<int64_t>(kTaskElements / facts.elements, 1,
                            std::max<int64_t>(facts.lines / (kTasksOfCore * target.cores), 1)),
        planned_extent(out.tree, nest.lines.back()));
  if (rows > 1) {
    out.take(SplitStep{{lines.back()}, rows});
    if (axis_of(out.tree, lines.back()).extent.is_constant(rows)) lines.pop_back();
  }
  share_values(out, nest, along, planned_extent(out.tree, facts.along), target);
  deal_lines(out, lines, {});
  cut_walks(out, along, tile);
  for (const std::string& axis : others) cut_walks(out, axis, tile);
  const int64_t tasks = ceil_divide(facts.lines, std::max(rows, neighbours));
  const size_t left =
      nest.walks.size() - merge_near(out, along,
                                     reads_far(out.tree, facts, rows, kShareOfCache, target),
                                     cuts_walk(nest, tasks, facts.elements));
  chunk_walk(out, nest, left, tasks, facts.elements, neighbours);
  part_walks(out, along, tile);
  for (const std::string& axis : others) part_walks(out, axis, tile);
}

// Writes out walks over few terms, so that nothing is decided in turns of a few instructions.
void unroll_few_terms(Scheduled& out, const ReductionNest& nest) {
  int64_t terms = 1;
  std::map<std::string, int64_t> extents;
  for (const Walk& walk : nest.walks)
    for (const size_t axis : walk.axes) {
      const auto extent = out.tree.axes[axis].extent.as_constant();
      if (!extent || *extent > kFewTerms) return;
      if (extents.emplace(out.tree.axes[axis].name, *extent).second) terms *= *extent;
    }
  if (terms > kMostTerms) return;
  for (const auto& [axis, extent] : extents)
    for (int64_t n = 1; find_loop(out.tree, {axis, n}); ++n)
      out.try_take(UnrollStep{{axis, n}, extent});
}

// Whether a walk of `width` columns reads more elements that do not depend on the line than the
// nearest cache holds.
bool reads_again(const LoopTree& tree, size_t line, const WalkFacts& facts, int64_t width,
                 const Target& target) {
  return std::ranges::any_of(facts.touched, [&](const TreeAccess& access) {
    return !access.store && access.stride(tree.axes[line]) == 0 &&
           access.stride(tree.axes[facts.along]) != 0 &&
           static_cast<int64_t>(access.bytes) * facts.elements * width > target.l1_bytes;
  });
}

// How many matrices a walk down the columns multiplies by something and does nothing else with, so
// that it waits for memory only.
int64_t matrices_of(const LoopTree& tree, const WalkFacts& facts, size_t column) {
  std::set<size_t> out;
  for (const LoopTask* task : facts.tasks) {
    const bool loads = std::ranges::all_of(
        task->body.steps, [](const LoopStep& s) { return s.kind == LoopStep::Kind::Load; });
    if (task->has_state() && (task->kind != LoopTask::Kind::Dot || !loads)) return 1;
  }
  for (const TreeAccess& access : facts.touched)
    if (!access.store && access.stride(tree.axes[column]) != 0 &&
        access.stride(tree.axes[facts.along]) != 0)
      out.insert(access.tensor);
  return std::max<int64_t>(std::ssize(out), 1);
}

void tile_columns(Scheduled& out, const ReductionNest& nest, const WalkFacts& facts, size_t column,
                  int64_t wide, const Target& target) {
  const std::string lane = out.tree.axes[column].name, along = out.tree.axes[facts.along].name;
  const int64_t extent = planned_extent(out.tree, column);
  // Rows of several matrices are so far apart that nothing fetches them early: a turn reads more of
  // them at the same time.
  const int64_t matrices = std::min<int64_t>(matrices_of(out.tree, facts, column), 2);
  size_t bytes = 4;  // of the widest sum
  for (const LoopTask* task : facts.tasks)
    if (task->makes_value()) bytes = std::max(bytes, size_of(out.tree.values[task->target].dtype));
  // Tiles are narrower if there are too few for all cores, except where a long walk is cut into
  // chunks, which are tasks as well: wide tiles read whole memory lines.
  const auto few = [&](int64_t tile) {
    const int64_t tasks = facts.lines / tile;
    const bool chunks = facts.one_pass && tasks < kFewTasks &&
                        facts.elements * tile >= 2 * target.cores * kChunkElements;
    return tasks < (chunks ? 2 : 2 * target.cores);
  };
  int64_t tile = wide;
  while (tile > target.vector_lanes(4) && (extent < tile || few(tile))) tile /= 2;
  std::vector<std::string> lines;
  std::optional<size_t> beside;
  for (const size_t line : nest.lines) {
    lines.push_back(out.tree.axes[line].name);
    if (line != column) beside = line;
  }
  // If several lines have terms of the same elements, a task takes neighbours along such a line as
  // a dimension of its tiles, and loads these elements once for all of them. Narrower tiles leave
  // registers for more neighbours.
  const int64_t lanes = target.vector_lanes(4);
  const auto vectors = [&](int64_t width) {
    return std::max<int64_t>(width * static_cast<int64_t>(bytes) / (4 * lanes), 1);
  };
  std::optional<std::string> again;  // the outermost such line
  int64_t neighbours = 1;
  if (facts.one_pass && facts.tasks.size() == 1)
    for (size_t i = nest.lines.size(); i-- > 0;) {
      const size_t line = nest.lines[i];
      if (line == column || !reads_again(out.tree, line, facts, tile, target)) continue;
      const std::string name = out.tree.axes[line].name;
      again = name;
      if (neighbours > 1) continue;
      int64_t count = 1, narrow = tile;
      for (int64_t t = tile; t >= std::min(tile, 2 * lanes); t /= 2) {
        const int64_t most = target.vector_registers / kShareOfRegisters / vectors(t);
        const int64_t n = divisor_at_most(out.tree, line, most);
        if (n > count) count = n, narrow = t;
      }
      // All cores need work, also if a task has several lines.
      const bool alone = lines.size() <= 2 && extent <= narrow;
      const bool enough = facts.lines / narrow >= 2 * target.cores * count ||
                          facts.elements * narrow >= kFewTasks * kChunkElements;
      if (count > 1 && enough && !alone && take_neighbours(out, name, count, lines)) {
        neighbours = count;
        tile = narrow;
      }
    }
  // If there are few terms, a task takes several neighbours of the innermost other line.
  if (beside && neighbours == 1) {
    const std::string name = out.tree.axes[*beside].name;
    const int64_t most = facts.lines / tile / (kTasksOfCore * target.cores);
    const int64_t each = std::min(
        std::clamp<int64_t>(kTaskElements / (facts.elements * tile), 1, std::max<int64_t>(most, 1)),
        planned_extent(out.tree, *beside));
    Scheduled next = out;
    if (each > 1 && next.try_take(SplitStep{{name}, each})) {
      const bool whole = !find_loop(next.tree, {name, 2});
      const bool outside =
          std::ranges::find(nest.lines, column) > std::ranges::find(nest.lines, *beside);
      if (!outside || next.try_take(ReorderStep{{name, whole ? 1 : 2}, {lane}})) {
        if (whole) std::erase(lines, name);
        out = std::move(next);
      }
    }
  }
  share_values(out, nest, lane, tile, target);
  deal_lines(out, lines, {{lane, tile}});
  int64_t rows = std::max<int64_t>(kRowsOfTurn * matrices * (wide / tile) / neighbours, 1);
  while (rows > 1 && facts.length < 2 * rows) rows /= 2;
  if (rows > 1)
    cut_walks(out, along, rows);
  else
    unroll_few_terms(out, nest);
  const int64_t tasks = ceil_divide(facts.lines, tile * neighbours);
  const size_t left =
      nest.walks.size() - merge_near(out, along,
                                     reads_far(out.tree, facts, tile, kShareOfCache, target),
                                     cuts_walk(nest, tasks, facts.elements * tile));
  chunk_walk(out, nest, left, tasks, facts.elements * tile, vectors(tile) * neighbours);
  // Tasks that read the same elements follow each other, and find them in a cache.
  if (again && std::ranges::count(lines, *again) > 0)
    out.try_take(DealStep{{lines[0]}, {{Deal::Order::Rows}}});
  if (rows > 1) part_walks(out, along, rows);
  put_last(out, lane);
  part_tail(out, {lane}, tile);
}

}  // namespace

std::optional<Refusal> tile_reductions_for_cpu(Scheduled& out, const Target& target) {
  const auto nest = collapsed_reductions(out);
  if (!nest) return unserved_reduction(out.tree);
  const WalkFacts facts = facts_of(out.tree, *nest);
  std::vector<size_t> axes = nest->lines;
  axes.push_back(facts.along);
  // Several vectors in flight hide latency, if there are enough registers for them.
  const int64_t lanes = target.vector_lanes(4);
  const int64_t wide = lanes * (target.vector_registers >= 32 ? 4 : 2);
  const size_t lane = best_lane_axis(out.tree, facts.touched, axes, lanes);
  if (lane == facts.along)
    tile_rows(out, *nest, facts, wide, target);
  else
    tile_columns(out, *nest, facts, lane, wide, target);
  sum_in_parts(out);
  return std::nullopt;
}

}  // namespace braze
