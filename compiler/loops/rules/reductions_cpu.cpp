// reductions_cpu.cpp — reductions on a CPU: over rows (vectors along the reduced axis, folded at
// the end) and over columns (vectors along another axis, the reduced axes walked in order).
#include <algorithm>

#include "compiler/loops/rules/reductions.h"

namespace braze {

namespace {

constexpr int64_t kTaskElements = 16'384;
constexpr int64_t kTasksOfCore = 4;
// A reduction with few results is cut into chunks. Their number is part of the schedule and does
// not depend on the machine, because it determines the order of the sum.
constexpr int64_t kFewTasks = 8;
constexpr int64_t kMostChunks = 16;
constexpr int64_t kChunkElements = 16'384;
// Rows of a column that a turn takes, each with sums of its own.
constexpr int64_t kRowsOfTurn = 2;

int64_t ceil_divide(int64_t a, int64_t b) { return (a + b - 1) / b; }

void chunk_walk(Scheduled& out, const ReductionNest& nest, const WalkFacts& facts, int64_t tasks,
                int64_t per_task) {
  if (!facts.one_pass || tasks >= kFewTasks) return;
  const size_t outermost = nest.walks[0].axes[0];
  const int64_t chunks =
      std::min({per_task / kChunkElements, planned_extent(out.tree, outermost), kMostChunks});
  if (chunks > 1) out.try_take(ChunkStep{{out.tree.axes[outermost].name}, chunks, Combine::Phase});
}

void tile_rows(Scheduled& out, const ReductionNest& nest, const WalkFacts& facts, int64_t wide,
               const Target& target) {
  const std::string along = out.tree.axes[facts.along].name;
  int64_t tile = target.vector_lanes(4);
  while (tile < wide && tile < facts.length) tile *= 2;
  std::vector<std::string> lines;
  for (const size_t line : nest.lines) lines.push_back(out.tree.axes[line].name);
  int64_t rows = 1;
  if (!lines.empty())
    rows = std::min(
        std::clamp<int64_t>(kTaskElements / facts.elements, 1,
                            std::max<int64_t>(facts.lines / (kTasksOfCore * target.cores), 1)),
        planned_extent(out.tree, nest.lines.back()));
  if (rows > 1) {
    out.take(SplitStep{{lines.back()}, rows});
    if (out.tree.axes[*find_axis(out.tree, lines.back())].extent.is_constant(rows))
      lines.pop_back();
  }
  deal_lines(out, lines, {});
  cut_walks(out, along, tile);
  merge_walks(out, along);
  chunk_walk(out, nest, facts, ceil_divide(facts.lines, rows), facts.elements);
  part_walks(out, along, tile);
}

void tile_columns(Scheduled& out, const ReductionNest& nest, const WalkFacts& facts, size_t column,
                  int64_t wide, const Target& target) {
  const std::string lane = out.tree.axes[column].name, along = out.tree.axes[facts.along].name;
  const int64_t extent = planned_extent(out.tree, column);
  int64_t tile = wide;
  while (tile > target.vector_lanes(4) && extent / tile < 2 * target.cores) tile /= 2;
  std::vector<std::string> lines;
  for (const size_t line : nest.lines) lines.push_back(out.tree.axes[line].name);
  deal_lines(out, lines, {{lane, tile}});
  const int64_t rows = facts.length >= 2 * kRowsOfTurn ? kRowsOfTurn : 1;
  if (rows > 1) cut_walks(out, along, rows);
  merge_walks(out, along);
  chunk_walk(out, nest, facts, ceil_divide(facts.lines, tile), facts.elements * tile);
  if (rows > 1) part_walks(out, along, rows);
  out.take(LastStep{lane});
  const Expr end = out.tree.axes[*find_axis(out.tree, lane)].extent;
  if (!end.is_multiple_of(tile) && end.range().max > tile)
    out.try_take(PartStep{{lane}, {Expr::index(lane, end), IndexComparison::Kind::Lt, end}});
}

// If the precision allows it, a core adds products by fma. The tree cannot express where.
bool sums_products(const ReductionNest& nest) {
  for (const Walk& walk : nest.walks)
    for (const LoopTask* task : walk.tasks) {
      const LoopStep& last = task->body.steps[task->body.results[0]];
      if (task->kind == LoopTask::Kind::Fold && task->monoid == Monoid::Sum &&
          is_floating(last.dtype) && last.kind == LoopStep::Kind::Apply &&
          last.op == ElementwiseOp::mul)
        return true;
    }
  return false;
}

}  // namespace

std::optional<Refusal> tile_reductions_for_cpu(Scheduled& out, const Target& target) {
  const auto nest = collapsed_reductions(out);
  if (!nest) return unserved_reduction(out.tree);
  if (compute_alike(out.tree, *nest))
    return Refusal{&codes::kNoRule, "no rule can keep a value that several loops compute", ""};
  if (sums_products(*nest))
    return Refusal{&codes::kNoRule, "no rule can add products before they are rounded", ""};
  const WalkFacts facts = facts_of(out.tree, *nest);
  std::vector<size_t> axes = nest->lines;
  axes.push_back(facts.along);
  // Several vectors in flight hide latency if there are enough registers for them.
  const int64_t lanes = target.vector_lanes(4);
  const int64_t wide = lanes * (target.vector_registers >= 32 ? 4 : 2);
  const size_t lane = best_lane_axis(out.tree, facts.touched, axes, lanes);
  if (lane == facts.along)
    tile_rows(out, *nest, facts, wide, target);
  else
    tile_columns(out, *nest, facts, lane, wide, target);
  return std::nullopt;
}

}  // namespace braze
