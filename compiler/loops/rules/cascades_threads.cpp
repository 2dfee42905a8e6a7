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

// The extents of what the first dots sum and of the columns of the last ones, by axis.
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
    std::set<size_t> axes = own_axes(tree, task);
    axes.insert(task.over.begin(), task.over.end());
    for (const size_t axis : axes)
      others |= axis != cascade.walk && !contains(cascade.nest, axis) && !out.contains(axis);
  });
  if (others) return no_rule("a task beside the dots has an axis that no dot has");
  return std::nullopt;
}

// Makes one axis of those that a first dot sums, where that is legal.
void join_sums(Scheduled& out, const Cascade& cascade) {
  std::vector<std::vector<std::string>> sums;
  for (const CascadeDot& dot : cascade.dots) {
    if (contains(dot.task->over, cascade.walk)) continue;
    std::vector<std::string>& names = sums.emplace_back();
    for (const size_t axis : dot.task->over) names.push_back(out.tree.axes[axis].name);
  }
  // From the inside outwards: the joined axis is the inner one of the next pair.
  for (const std::vector<std::string>& names : sums)
    for (size_t i = names.size(); i-- > 1;)
      if (!out.try_take(CollapseStep{{names[i - 1]}, {names[i]}})) break;
}

// The greatest power of two that divides n.
int64_t even_part(int64_t n) { return n & -n; }

}  // namespace

std::optional<Refusal> tile_cascade_by_threads(Scheduled& out, const Target& target) {
  const LoopTree first = out.tree;
  const auto form = find_cascade(first, /*may_be_one_row=*/true);
  if (const auto* refusal = std::get_if<Refusal>(&form)) return *refusal;
  join_sums(out, std::get<Cascade>(form));
  draw_factors(out);
  const LoopTree tree = out.tree;
  const auto found = find_cascade(tree, /*may_be_one_row=*/true);
  if (const auto* refusal = std::get_if<Refusal>(&found)) return *refusal;
  const auto& cascade = std::get<Cascade>(found);
  if (!cascade.around.empty())
    return no_rule("the results of the first dots have a further axis that is summed");
  const auto name = [&](size_t axis) { return tree.axes[axis].name; };
  const int64_t rows = cascade.rows ? planned_extent(tree, *cascade.rows) : 1;
  const bool constant = !cascade.rows || tree.axes[*cascade.rows].extent.as_constant();
  if (rows > kFewCascadeRows || !constant)
    return no_rule("threads take a cascade of few rows only, whose number is known");
  std::map<size_t, int64_t> inner;
  if (auto refusal = collect_inner(tree, cascade, inner)) return refusal;

  int64_t bytes = 1;   // of an element of what is walked
  int64_t walked = 0;  // bytes for one index of the walk
  for (const CascadeDot& dot : cascade.dots)
    for (const TreeAccess& access : accesses(tree, *dot.task)) {
      if (access.store || !access.offset.uses(name(cascade.walk))) continue;
      bytes = std::max(bytes, static_cast<int64_t>(access.bytes));
      int64_t elements = 1;
      for (const auto& [axis, extent] : inner)
        if (access.offset.uses(name(axis))) elements *= extent;
      walked += elements * static_cast<int64_t>(access.bytes);
    }
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

  std::vector<std::string> lines;
  for (const size_t axis : cascade.nest) lines.push_back(name(axis));
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
  const int64_t chunks =
      floor_power_of_two(std::min({kMostChunks, 2 * target.cores / instances,
                                   length * walked / kPhaseBytes, ceil_divide(length, turn)}));
  if (chunks > 1) chunk_by_phase(out, name(cascade.walk), chunks);
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
