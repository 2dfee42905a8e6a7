// tiles_cpu.cpp — the rule for loops without reductions on a CPU: vectors run along one axis, and
// tasks are long enough to be worth their start but short enough for a good balance.
#include <algorithm>

#include "compiler/loops/rules/facts.h"
#include "compiler/loops/rules/rules.h"

namespace braze {

namespace {

constexpr double kTaskOperations = 40'000;
constexpr int64_t kLeastElements = 1024;
constexpr int64_t kMostElements = 32'768;
constexpr int64_t kMostExtent = int64_t{1} << 50;
// Lanes that are apart in memory are loaded one by one. LLVM needs seconds to compile more such
// loads than this.
constexpr int64_t kMostLoadsOfLanes = 1024;
// If neighbours across the lanes share memory lines, a task takes this many indices across and
// along the lanes, in squares of vectors, which are loaded along memory and transposed.
constexpr int64_t kSquare = 64;
// Each boundary at which a loop is cut adds two copies of its body.
constexpr size_t kMostBoundaries = 2;

}  // namespace

void tile_for_cpu(Scheduled& out, const Target& target) {
  const LoopTree& tree = out.tree;
  const std::vector<size_t> axes = nest_axes(tree).value();
  if (axes.empty()) return;
  const auto touched = accesses(tree);
  const int64_t lanes = target.vector_lanes(4);
  const size_t lane = best_lane_axis(tree, touched, axes, lanes);
  const int64_t extent = planned_extent(tree, lane);
  // Four vectors in flight hide latency if there are enough registers for them.
  int64_t tile = lanes * (target.vector_registers >= 32 ? 4 : 2);
  while (tile > lanes && tile / 2 >= extent) tile /= 2;
  const auto apart = std::count_if(touched.begin(), touched.end(), [&](const TreeAccess& access) {
    const int64_t stride = access.stride(tree.axes[lane]);
    return !access.store && stride != 0 && stride != 1;
  });
  while (tile > lanes && apart * tile > kMostLoadsOfLanes) tile /= 2;

  // Choose the part of each axis that a task takes.
  int64_t total = 1;
  for (const size_t axis : axes) total = std::min(total * planned_extent(tree, axis), kMostExtent);
  const double work = std::max(operations(tree).varying, 1.0);
  int64_t elements =
      std::clamp(static_cast<int64_t>(kTaskOperations / work), kLeastElements, kMostElements);
  elements = std::max<int64_t>(std::min(elements, total / std::max(target.cores, 1)), tile);
  std::vector<int64_t> block(tree.axes.size(), 1);
  std::optional<size_t> across;
  for (const TreeAccess& access : touched)
    for (const size_t axis : axes)
      if (axis != lane && access.stride(tree.axes[axis]) == 1 &&
          access.stride(tree.axes[lane]) != 0)
        across = axis;
  const bool squares = across && planned_extent(tree, *across) >= lanes;
  if (squares) tile = std::min(tile, lanes);
  const auto tiles = [&](int64_t n) { return (n + tile - 1) / tile; };
  block[lane] = std::min(tiles(elements), tiles(extent)) * tile;
  if (across) {
    block[lane] = std::min(block[lane], std::max(tile, kSquare));
    block[*across] = std::min(kSquare, planned_extent(tree, *across));
  } else {
    int64_t left = std::max<int64_t>(elements / block[lane], 1);
    for (size_t i = axes.size(); i-- > 0 && left > 1;) {
      if (axes[i] == lane) continue;
      block[axes[i]] = std::min(left, planned_extent(tree, axes[i]));
      left /= block[axes[i]];
    }
  }

  // The loops over tasks stand outside; inside, the loops of a task have the same order.
  const auto name = [&](size_t axis) { return out.tree.axes[axis].name; };
  std::vector<std::string> outer;
  std::vector<bool> cut(tree.axes.size());
  for (size_t i = 0; i < axes.size(); ++i) {
    const size_t axis = axes[i];
    if (block[axis] > 1) out.take(SplitStep{{name(axis)}, block[axis]});
    cut[axis] = loop_at(out.tree, *find_loop(out.tree, {name(axis)})).levels[0].turn == block[axis];
    if (!cut[axis]) continue;  // one task takes all of the axis
    for (size_t k = i; k-- > 0;)
      if (block[axes[k]] > 1)
        out.take(ReorderStep{{name(axes[k]), cut[axes[k]] ? 2 : 1}, {name(axis)}});
    outer.push_back(name(axis));
  }
  deal_out(out, outer);

  // The loops over a tile stand inside those that walk from tile to tile.
  std::vector<size_t> tiled;  // as the loops are nested
  for (const size_t axis : axes)
    if (axis == lane || (squares && axis == *across)) tiled.push_back(axis);
  std::vector<LoopName> walks, wholes;
  for (const size_t axis : tiled) {
    const Expr end = tree.axes[axis].extent;
    LoopName walk{name(axis), cut[axis] ? 2 : 1}, whole = walk;
    if (cut[axis] && block[axis] == tile) {
      walk.number = 1;
    } else {
      out.take(SplitStep{walk, tile, !cut[axis] && end.range().max <= tile});
      if (cut[axis] || !end.is_constant(tile)) ++whole.number;
    }
    if (!wholes.empty() && walk.number + 1 == whole.number && (walk.number == 2 || !cut[axis]))
      out.take(ReorderStep{wholes[0], walk});
    walks.push_back(walk);
    wholes.push_back(whole);
  }
  // Lanes that are apart in memory are loaded once for all turns of the inner loops along axes on
  // which they do not depend, if those loops stand inside the walk from tile to tile.
  const auto serves_turns = [&](size_t axis) {
    return std::ranges::any_of(touched, [&](const TreeAccess& access) {
      const int64_t stride = access.stride(tree.axes[lane]);
      return !access.store && stride != 0 && stride != 1 && access.stride(tree.axes[axis]) == 0;
    });
  };
  if (!squares)
    for (size_t i = axes.size(); i-- > 0;)
      if (axes[i] != lane && block[axes[i]] > 1 && serves_turns(axes[i]))
        out.try_take(ReorderStep{{name(axes[i]), cut[axes[i]] ? 2 : 1}, walks[0]});
  for (const LoopName& loop : wholes) out.take(WholeStep{loop});

  // Whole vectors need no masks.
  for (const LoopName& walk : walks) part_tail(out, walk, tile);
  // What is joined or padded is another load on each side of a boundary. If tasks are single tiles,
  // there is no loop to cut.
  const LoopName walk = walks[std::ranges::find(tiled, lane) - tiled.begin()];
  const auto loop = find_loop(out.tree, walk);
  const auto boundaries = boundaries_along(out.tree, lane);
  const LoopAxis along = out.tree.axes[lane];
  const bool is_walked = loop && loop_at(out.tree, *loop).on == Machine::None;
  if (is_walked && along.extent.is_multiple_of(tile) && boundaries &&
      boundaries->size() <= kMostBoundaries)
    for (const int64_t boundary : *boundaries)
      out.try_take(PartStep{walk, {along.index(), IndexComparison::Kind::Ge, boundary}});
}

}  // namespace braze
