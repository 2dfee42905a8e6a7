// cascades_few_cpu.cpp — the rule for cascades of dots with few rows on a CPU, if an integer that
// is loaded bounds the walk, as the position does in decoding. Kernels of one dot each would not
// know where to end. A turn takes as many indices of the walk as a vector has lanes; the vectors
// run along what the first dots sum, and along the columns of the last ones.
#include <algorithm>
#include <map>

#include "compiler/loops/rules/cascade.h"
#include "compiler/loops/rules/layouts.h"
#include "compiler/loops/rules/reductions.h"

namespace braze {

namespace {

constexpr int64_t kMostRows = 15;
// What an instance walks in the time that a second phase takes to combine chunks.
constexpr int64_t kPhaseBytes = 128 << 10;

}  // namespace

std::optional<Refusal> tile_few_rows_for_cpu(Scheduled& out, const Target& target) {
  LoopTree tree;
  const auto found = joined_cascade(out, tree);
  if (const auto* refusal = std::get_if<Refusal>(&found)) return *refusal;
  const auto& cascade = std::get<Cascade>(found);
  const auto name = [&](size_t axis) { return tree.axes[axis].name; };
  const int64_t rows = cascade.rows ? planned_extent(tree, *cascade.rows) : 1;
  if (rows > kMostRows || (cascade.rows && !tree.axes[*cascade.rows].extent.as_constant()))
    return no_rule("the rows are many, or their number is not known");
  std::map<size_t, int64_t> inner;
  if (auto refusal = collect_inner(tree, cascade, inner)) return refusal;

  // The sums of the rows stay in registers, beside the factors.
  const int64_t lanes = target.vector_lanes(4), turn = lanes;
  int64_t vectors = 1;
  for (const auto& [axis, extent] : inner) vectors = std::max(vectors, ceil_divide(extent, lanes));
  const int64_t registers = target.vector_registers * 3 / 4;
  if (vectors > registers) return no_rule("the sums of one row do not fit in the registers");
  const int64_t row_tile = std::min(rows, registers / vectors);

  const std::vector<std::string> lines = names_of(tree, cascade.nest);
  std::vector<std::pair<std::string, int64_t>> tiled_lines;
  if (row_tile > 1) tiled_lines.emplace_back(name(*cascade.rows), row_tile);
  deal_lines(out, lines, tiled_lines);
  make_whole(out, {cascade.walk});
  if (auto refusal = join_walk(out, cascade.walk, turn)) return refusal;
  limit_walk(out, cascade.walk);
  // A part of a kernel may not load the integer itself, while the whole kernel does.
  if (!loop_at(out.tree, find_loop(out.tree, {name(cascade.walk)}).value()).limit && !out.unlimited)
    return no_rule("no integer that is loaded bounds the walk");
  int64_t instances = ceil_divide(rows, row_tile);
  for (const size_t axis : cascade.nest)
    if (axis != cascade.rows) instances *= planned_extent(tree, axis);
  const int64_t bytes = planned_extent(tree, cascade.walk) * walked_bytes(tree, cascade, inner);
  if (instances < target.cores) {
    const int64_t chunks = floor_power_of_two(
        std::max<int64_t>(std::min(2 * target.cores / instances, bytes / kPhaseBytes), 1));
    if (chunks > 1) chunk_by_phase(out, name(cascade.walk), chunks);
  }
  if (out.tree.phases.size() == 1) part_walk(out, cascade.walk, turn);
  for (const auto& [axis, extent] : inner) out.try_take(LastStep{name(axis)});
  return std::nullopt;
}

}  // namespace braze
