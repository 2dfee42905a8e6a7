// cascades_threads.cpp — the rule for cascades of dots with few rows on a GPU's ordinary units. The
// rows stay in registers. Several neighbouring threads share an index of the walk, each with a part
// of what the first dots sum and of the columns of the last ones, so that both of the walked
// factors are read by whole memory lines.
#include <algorithm>
#include <map>

#include "compiler/loops/rules/cascade.h"
#include "compiler/loops/rules/layouts.h"
#include "compiler/loops/rules/reductions.h"
#include "ir/target/features.h"

namespace braze {

namespace {

constexpr int64_t kAccessBytes = 16;
constexpr int64_t kThreads = 256, kRegisters = 128;  // two blocks on a multiprocessor
// Indices of the walk of a thread in one turn, whose loads overlap.
constexpr int64_t kMostIndices = 4;
// Elements of a factor, and of the sums of all rows, that a thread can keep.
constexpr int64_t kMostLoaded = 48, kMostSums = 64;
// What an instance walks in the time that a second phase takes to combine chunks.
constexpr int64_t kPhaseBytes = 128 << 10;
constexpr int64_t kMostChunks = 64;

// The greatest power of two that divides n.
int64_t even_part(int64_t n) { return n & -n; }

}  // namespace

std::optional<Refusal> tile_cascade_by_threads(Scheduled& out, const Target& target) {
  LoopTree tree;
  const auto found = joined_cascade(out, tree);
  if (const auto* refusal = std::get_if<Refusal>(&found)) return *refusal;
  const auto& cascade = std::get<Cascade>(found);
  const auto name = [&](size_t axis) { return tree.axes[axis].name; };
  const int64_t rows = cascade.rows ? planned_extent(tree, *cascade.rows) : 1;
  const bool constant = !cascade.rows || tree.axes[*cascade.rows].extent.as_constant();
  if (rows > kFewCascadeRows || !constant)
    return no_rule("threads take a cascade of few rows only, whose number is known");
  std::map<size_t, int64_t> inner;
  if (auto refusal = collect_inner(tree, cascade, inner)) return refusal;

  int64_t bytes = 1;  // of an element of what is walked
  for (const CascadeDot& dot : cascade.dots)
    for (const TreeAccess& access : accesses(tree, *dot.task))
      if (!access.store && access.offset.uses(name(cascade.walk)))
        bytes = std::max(bytes, static_cast<int64_t>(access.bytes));
  const int64_t walked = walked_bytes(tree, cascade, inner);
  // How the inner axes lie on threads: all on the same lanes.
  int64_t lanes = kWarpThreads, vector = kAccessBytes / bytes;
  for (const auto& [axis, extent] : inner) vector = std::min(vector, even_part(extent));
  for (const auto& [axis, extent] : inner) lanes = std::min(lanes, even_part(extent / vector));
  int64_t kept = 1;
  for (const auto& [axis, extent] : inner) kept = std::max(kept, extent / lanes);
  const int64_t row_tile = ceil_power_of_two(rows);
  int64_t indices = kMostIndices;
  while (indices > 1 && kept * indices > kMostLoaded) indices /= 2;
  if (lanes * vector * bytes < 2 * kAccessBytes || kept * indices > kMostLoaded ||
      kept * row_tile > kMostSums)
    return no_rule("the inner axes of the cascade do not fit the lanes and registers of a warp");
  const int64_t slots = kThreads / lanes;
  const int64_t turn = slots * indices;

  const std::vector<std::string> lines = names_of(tree, cascade.nest);
  std::vector<TiledAxis> tiled;
  std::vector<Digit> of_walk = digits({{Resource::Register, kept, indices}});
  for (const Digit& digit : threads_along(lanes, slots)) of_walk.push_back(digit);
  tiled.push_back({name(cascade.walk), turn, of_walk});
  for (const auto& [axis, extent] : inner)
    tiled.push_back({name(axis), extent,
                     digits({{Resource::Register, vector, extent / (lanes * vector)},
                             {Resource::Lane, 1, lanes},
                             {Resource::Register, 1, vector}})});
  std::vector<std::pair<std::string, int64_t>> tiled_lines;
  if (row_tile > 1) {
    tiled_lines.emplace_back(name(*cascade.rows), row_tile);
    tiled.push_back(
        {name(*cascade.rows), row_tile, digits({{Resource::Register, kept * indices, row_tile}})});
  }
  deal_lines(out, lines, tiled_lines);
  make_whole(out, {cascade.walk});
  if (auto refusal = join_walk(out, cascade.walk, turn)) return refusal;
  // Few instances leave most of the machine idle.
  int64_t instances = 1;
  for (const size_t axis : cascade.nest)
    if (axis != cascade.rows) instances *= planned_extent(tree, axis);
  const int64_t length = planned_extent(tree, cascade.walk);
  const int64_t turns = ceil_divide(length, turn);
  int64_t chunks = floor_power_of_two(
      std::min({kMostChunks, 2 * target.cores / instances, length * walked / kPhaseBytes, turns}));
  // A plain program finds layouts by extents, and chunks lie on other threads than the indices of a
  // thread, so there cannot be as many of them.
  if (chunks == indices) chunks = 2 * chunks <= turns ? 2 * chunks : chunks / 2;
  if (chunks > 1) {
    limit_walk(out, cascade.walk);
    chunk_by_phase(out, name(cascade.walk), chunks);
  }
  if (out.tree.phases.size() > 1) {
    // Threads that were on the walk combine the chunks.
    const int64_t shared = std::min(slots, chunks);
    std::vector<Digit> of_chunks = digits({{Resource::Register, kept, chunks / shared}});
    for (const Digit& digit : threads_along(lanes, shared)) of_chunks.push_back(digit);
    tiled.push_back({out.tree.axes.back().name, chunks, of_chunks});
  } else {
    part_walk(out, cascade.walk, turn);
  }
  for (const auto& [axis, extent] : inner) out.try_take(LastStep{name(axis)});
  bind_layouts(out, tiled);
  out.take(RegistersStep{kRegisters});
  return std::nullopt;
}

}  // namespace braze
