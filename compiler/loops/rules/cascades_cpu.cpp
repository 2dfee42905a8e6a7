// cascades_cpu.cpp — the rule for cascades of dots on a CPU: an instance takes a few rows, whose
// sums stay in registers, and walks along the other factors. The results of the first dots are
// tiles in registers; where they are factors of other dots, they pass through a buffer of the
// core's cache.
#include <algorithm>

#include "compiler/loops/rules/cascade.h"
#include "compiler/loops/rules/facts.h"
#include "compiler/loops/rules/panels_cpu.h"
#include "compiler/loops/rules/partial_sums.h"

namespace braze {

namespace {

constexpr int64_t kTurnVectors = 4;  // of a turn of the walk
constexpr int64_t kMostRows = 8, kLeastRows = 16;
constexpr int64_t kUnrolled = 4;

struct CascadeTile {
  int64_t rows = 1, turn = 1;
};

// The sums of the walk, or those of a turn, must fit in the registers beside the factors. Nothing
// if those of one row do not.
std::optional<CascadeTile> choose_tile(const LoopTree& tree, const Cascade& cascade,
                                       const Target& target) {
  const int64_t lanes = target.vector_lanes(4);
  int64_t vectors = kTurnVectors;
  for (const CascadeDot& dot : cascade.dots) {
    // A result of a first dot has a turn of the walk as its innermost axis.
    const bool first = std::ranges::count(dot.task->over, cascade.walk) == 0;
    int64_t columns = first ? kTurnVectors * lanes : 1;
    for (const size_t axis : tree.values[dot.task->target].axes)
      if (axis != *cascade.rows && axis != cascade.walk &&
          std::ranges::count(cascade.nest, axis) == 0)
        columns *= planned_extent(tree, axis);
    vectors = std::max(vectors, (columns + lanes - 1) / lanes);
  }
  const int64_t registers = target.vector_registers * 3 / 4;
  if (vectors > registers) return {};
  return CascadeTile{std::min(registers / vectors, kMostRows), kTurnVectors * lanes};
}

// Whether the task reads anything at an index that contains the axis.
bool reads_along(const LoopTree& tree, const LoopTask& task, size_t axis) {
  const std::string& name = tree.axes[axis].name;
  return std::ranges::any_of(task.body.steps, [&](const LoopStep& s) {
    return std::ranges::any_of(s.at, [&](const Expr& e) { return e.uses(name); });
  });
}

// A dot whose results are equal along an axis is a sum, and its terms would all be in registers.
bool repeats_results(const LoopTree& tree, const Cascade& cascade) {
  return std::ranges::any_of(cascade.dots, [&](const CascadeDot& dot) {
    return std::ranges::any_of(tree.values[dot.task->target].axes,
                               [&](size_t axis) { return !reads_along(tree, *dot.task, axis); });
  });
}

// Whether something is stored for each turn and row, with the rows side by side in memory. A vector
// along the walk would then be scattered, an element to each memory line.
bool scatters(const LoopTree& tree, const Cascade& cascade) {
  const LoopAxis &rows = tree.axes[*cascade.rows], &walk = tree.axes[cascade.walk];
  bool out = false;
  for (const LoopRegion& phase : tree.phases)
    for_each_task(phase, [&](const LoopTask& task, const auto&) {
      for (const TreeAccess& access : accesses(tree, task))
        out |= access.store && access.stride(rows) == 1 && access.offset.uses(walk.name) &&
               access.stride(walk) != 1;
    });
  return out;
}

// A dot of the walk's turns: what it sums, by name, the innermost axis last.
struct FirstDot {
  std::vector<std::string> summed;
  bool across = false;  // whether its factor without the rows is contiguous along what it sums
};

std::vector<FirstDot> first_dots(const LoopTree& tree, const Cascade& cascade) {
  std::vector<FirstDot> out;
  for (const CascadeDot& dot : cascade.dots) {
    if (dot.task->over.empty() || std::ranges::count(dot.task->over, cascade.walk) > 0) continue;
    FirstDot first;
    for (const size_t axis : dot.task->over) first.summed.push_back(tree.axes[axis].name);
    for (const TreeAccess& access : accesses(tree, *dot.task))
      first.across |= access.stride(tree.axes[*cascade.rows]) == 0 &&
                      access.stride(tree.axes[dot.task->over.back()]) == 1;
    out.push_back(std::move(first));
  }
  return out;
}

std::optional<Refusal> take_rows(Scheduled& out, const Target& target, bool picks) {
  const LoopTree tree = out.tree;
  const auto found = find_cascade(tree);
  if (const auto* refusal = std::get_if<Refusal>(&found)) return *refusal;
  const auto& cascade = std::get<Cascade>(found);
  if (!cascade.around.empty())
    return no_rule("the results of the first dots have a further axis that is summed");
  if (repeats_results(tree, cascade))
    return no_rule("the results of a dot are equal along an axis");
  if (scatters(tree, cascade)) return no_rule("what the walk stores lies across its vectors");
  const auto name = [&](size_t axis) { return tree.axes[axis].name; };
  const std::string rows = name(*cascade.rows), walk = name(cascade.walk);
  const auto tile = choose_tile(tree, cascade, target);
  if (!tile) return no_rule("the sums of one row do not fit in the registers");
  // The other factors of few rows are read once, in whichever loop.
  if (planned_extent(tree, *cascade.rows) < kLeastRows)
    return no_rule("a cascade pays for many rows only, which share the other factors");
  const std::vector<FirstDot> firsts = first_dots(tree, cascade);

  const auto take = [&](StepKind step) -> std::optional<Refusal> {
    auto refusal = std::visit([&](const auto& kind) { return legal(out.tree, kind); }, step);
    if (!refusal) out.take(std::move(step));
    return refusal;
  };
  std::vector<LoopName> grid;
  for (const size_t axis : cascade.nest) {
    if (axis == *cascade.rows) continue;
    grid.push_back({name(axis)});
    if (std::ranges::find(cascade.nest, axis) > std::ranges::find(cascade.nest, *cascade.rows))
      if (auto refusal = take(ReorderStep{{rows}, {name(axis)}})) return refusal;
  }
  grid.push_back({rows});
  if (auto refusal = take(SplitStep{{rows}, tile->rows, /*padded=*/true})) return refusal;
  if (auto refusal = take(WholeStep{{rows, 2}})) return refusal;
  deal_out(out, grid);
  // What one dot sums may be an axis of another one's result: the factor of both is the same.
  std::set<size_t> streams;
  for (const CascadeDot& dot : cascade.dots)
    streams.insert(dot.task->over.begin(), dot.task->over.end());
  make_whole(out, {cascade.walk}, streams);
  if (auto refusal = join_walk(out, cascade.walk, tile->turn)) return refusal;
  part_walk(out, cascade.walk, tile->turn, WalkRanges{1, tile->turn, picks});
  // Turns of a walk that begins anywhere are no whole panels.
  const Loop& walked = loop_at(out.tree, *find_loop(out.tree, {walk}));
  const bool from_start = !walked.bounds || walked.bounds->first.is_constant(0);
  for (const FirstDot& first : firsts) {
    const auto sum = sum_loop(out, first.summed.back());
    if (!sum) continue;
    out.try_take(UnrollStep{*sum, kUnrolled});
    if (first.across && from_start)
      pack_lanes(out, first.summed, {walk, rows, tile->turn, first.across}, target);
  }
  sum_in_parts(out);
  return std::nullopt;
}

}  // namespace

std::optional<Refusal> tile_cascade_for_cpu(Scheduled& out, const Target& target) {
  if (const auto found = find_cascade(out.tree); std::holds_alternative<Refusal>(found))
    return std::get<Refusal>(found);
  draw_factors(out);
  return take_with_picks(
      out, target, [&](Scheduled& tree, bool picks) { return take_rows(tree, target, picks); });
}

}  // namespace braze
