// scans.cpp — the rule for running values along one axis. If vectors run along that axis, a warp or
// a few warps take a line of it. If they run along another axis, a block takes a strip of lines. On
// a CPU, one task walks a line or a strip of lines.
#include <algorithm>
#include <bit>

#include "compiler/loops/rules/facts.h"
#include "compiler/loops/rules/rules.h"
#include "ir/code/layout.h"

namespace braze {

namespace {

// Figures for GPUs.
constexpr int64_t kBlockWarps = 4;
constexpr int64_t kMostWarps = 8;
constexpr int64_t kWarpsToFill = 32;   // warps that fill a multiprocessor
constexpr int64_t kVectors = 4;        // vectors of a thread, in flight
constexpr int64_t kElements = 32;      // elements of a thread in a strip
constexpr int64_t kLeastSegment = 64;  // bytes of each line of a strip
constexpr int64_t kBlocksPerCore = 4;  // blocks for a line, if lines are cut into chunks
constexpr int64_t kTilesOfChunk = 4;   // tiles of a chunk at least
constexpr int64_t kMostChunks = 1024;
// Figures for CPUs.
constexpr int64_t kVectorsOfTile = 8;
constexpr int64_t kStrip = 256;  // elements of each line of a strip
constexpr int64_t kTaskElements = 32'768;

/// Parallel loops around one loop along which scans run, with nothing else inside.
struct Nest {
  std::vector<size_t> lines;  // axes, the outermost first
  size_t along = 0;
  bool down = false;
};

std::optional<Nest> scan_nest(const LoopTree& tree) {
  Nest out;
  if (tree.phases.size() != 1) return std::nullopt;
  for (const LoopRegion* region = &tree.phases[0];;) {
    const auto* inner = region->size() == 1 ? std::get_if<Box<Loop>>(&region->front()) : nullptr;
    if (!inner || (*inner)->levels.size() != 1) return std::nullopt;
    const Loop& loop = **inner;
    region = &loop.body;
    if (loop.parallel) {
      out.lines.push_back(loop.levels[0].axis);
      continue;
    }
    out.along = loop.levels[0].axis;
    out.down = loop.down;
    for (const LoopItem& item : loop.body) {
      const auto* task = std::get_if<LoopTask>(&item);
      if (!task || (task->makes_value() && task->kind != LoopTask::Kind::Scan)) return std::nullopt;
    }
    return out;
  }
}

/// The tile that the steps make, and its layout.
struct ScanTile {
  std::vector<int64_t> turn;               // indices of each axis in a tile
  std::vector<std::vector<Digit>> digits;  // the digits of each axis

  explicit ScanTile(const LoopTree& tree) : turn(tree.axes.size(), 1), digits(tree.axes.size()) {}
  /// Adds a digit below those that the axis has.
  void add(size_t axis, Resource resource, int64_t stride, int64_t extent) {
    if (extent == 1) return;
    turn[axis] *= extent;
    digits[axis].push_back({resource, stride, extent});
  }
  Layout layout() const {
    Layout out;
    for (const auto& axis : digits)
      if (!axis.empty()) out.axes.push_back(axis);
    return out;
  }
};

// The most parts of the tuples that are scanned, as a power of two: a thread has as many values for
// each element.
int64_t most_parts(const LoopTree& tree) {
  size_t out = 1;
  for_each_task(tree.phases[0], [&](const LoopTask& task, const auto&) {
    if (task.kind == LoopTask::Kind::Scan) out = std::max(out, task.combiner.parts());
  });
  return ceil_power_of_two(static_cast<int64_t>(out));
}

int64_t count_lines(const LoopTree& tree, const Nest& nest) {
  int64_t lines = 1;
  for (const size_t axis : nest.lines)
    lines = std::min(lines * planned_extent(tree, axis), int64_t{1} << 40);
  return lines;
}

// The tile if warps run along lines. A block may take several lines.
ScanTile lines_of_gpu(const LoopTree& tree, const Nest& nest, int64_t vector,
                      const Target& target) {
  const int64_t length = planned_extent(tree, nest.along), lines = count_lines(tree, nest);
  const int64_t lanes = std::min(kWarpThreads, ceil_power_of_two((length + vector - 1) / vector));
  int64_t warps = 1;
  while (warps < kMostWarps && lines * warps < kWarpsToFill * target.cores &&
         length >= 4 * warps * lanes * vector)
    warps *= 2;
  int64_t vectors = std::max<int64_t>(kVectors / most_parts(tree), 1);
  while (vectors > 1 && vectors * warps * lanes * vector / 2 >= length) vectors /= 2;
  ScanTile out(tree);
  out.add(nest.along, Resource::Register, vector, vectors);
  out.add(nest.along, Resource::Warp, 1, warps);
  out.add(nest.along, Resource::Lane, 1, lanes);
  out.add(nest.along, Resource::Register, 1, vector);
  if (nest.lines.empty()) return out;
  const size_t side = nest.lines.back();
  const int64_t most = ceil_power_of_two(planned_extent(tree, side));
  const int64_t beside = std::min(kWarpThreads / lanes, most);
  out.add(side, Resource::Warp, warps,
          std::min(std::max<int64_t>(kBlockWarps / warps, 1),
                   ceil_power_of_two((most + beside - 1) / beside)));
  out.add(side, Resource::Lane, lanes, beside);
  return out;
}

// The tile if a block takes a strip of lines side by side: lanes lie across the lines, and warps
// follow each other along them.
ScanTile strip_of_gpu(const LoopTree& tree, const Nest& nest, size_t across, int64_t vector,
                      int64_t bytes, const Target& target) {
  const int64_t length = planned_extent(tree, nest.along), lines = count_lines(tree, nest);
  const int64_t widest = std::min(
      kWarpThreads, ceil_power_of_two((planned_extent(tree, across) + vector - 1) / vector));
  int64_t lanes = widest;
  while (lanes > 1 && lines / (lanes * vector) < 2 * target.cores &&
         lanes * vector * bytes > kLeastSegment)
    lanes /= 2;
  // So few lines are cut into chunks anyway, which are as many blocks as one likes. The totals of
  // chunks are scanned line by line, so one block does not take all lines.
  if (lines / (lanes * vector) < target.cores &&
      length >= 2 * kTilesOfChunk * kMostWarps * kElements)
    for (lanes = widest; lanes > 1 && lanes * vector >= planned_extent(tree, across);) lanes /= 2;
  int64_t rows = std::clamp<int64_t>(kElements / vector / most_parts(tree), 1, 8),
          beside = kWarpThreads / lanes;
  int64_t warps = kMostWarps;
  while (warps > 1 && warps * beside * rows / 2 >= length) warps /= 2;
  while (rows > 1 && warps * beside * rows / 2 >= length) rows /= 2;
  while (beside > 1 && warps * beside * rows / 2 >= length) beside /= 2;
  ScanTile out(tree);
  out.add(nest.along, Resource::Warp, 1, warps);
  out.add(nest.along, Resource::Lane, lanes, beside);
  out.add(nest.along, Resource::Register, vector, rows);
  const int64_t more = std::max<int64_t>(kBlockWarps / warps, 1);
  if (planned_extent(tree, across) >= more * lanes * vector)
    out.add(across, Resource::Warp, warps, more);
  out.add(across, Resource::Lane, 1, lanes);
  out.add(across, Resource::Register, 1, vector);
  return out;
}

ScanTile tile_of_gpu(const LoopTree& tree, const Nest& nest, const Target& target) {
  const auto touched = accesses(tree);
  std::vector<size_t> axes = nest.lines;
  axes.push_back(nest.along);
  const size_t lane = best_lane_axis(tree, touched, axes, kWarpThreads);
  // Vectors must lie along the last dimension of a tile.
  const bool last = lane > nest.along || nest.lines.empty() || lane > nest.lines.back();
  const int64_t vector = last ? vector_along(touched, tree.axes[lane]) : 1;
  int64_t bytes = 1;
  for (const TreeAccess& access : touched)
    if (access.stride(tree.axes[lane]) == 1)
      bytes = std::max(bytes, static_cast<int64_t>(access.bytes));
  return lane == nest.along ? lines_of_gpu(tree, nest, vector, target)
                            : strip_of_gpu(tree, nest, lane, vector, bytes, target);
}

ScanTile tile_of_cpu(const LoopTree& tree, const Nest& nest, const Target& target) {
  std::vector<size_t> axes = nest.lines;
  axes.push_back(nest.along);
  const int64_t lanes = target.vector_lanes(4);
  const size_t lane = best_lane_axis(tree, accesses(tree), axes, lanes);
  const int64_t extent = planned_extent(tree, lane);
  ScanTile out(tree);
  if (lane == nest.along) {
    int64_t vectors = std::max<int64_t>(kVectorsOfTile / most_parts(tree), 1);
    while (vectors > 1 && vectors * lanes / 2 >= extent) vectors /= 2;
    out.add(lane, Resource::Register, lanes, vectors);
    out.add(lane, Resource::Register, 1, lanes);
  } else {
    int64_t strip = std::max(kStrip / most_parts(tree), lanes);
    while (strip > lanes && (strip / 2 >= extent || count_lines(tree, nest) < strip * target.cores))
      strip /= 2;
    out.add(lane, Resource::Register, 1, strip);
  }
  return out;
}

// If there are too few lines to fill the machine, cuts them into chunks, each for one block. The
// number of chunks is a power of two, so that a warp can scan the totals. Returns whether it did.
bool chunk_lines(Scheduled& out, const Nest& nest, const ScanTile& tile, const Target& target) {
  int64_t blocks = 1;
  for (const size_t axis : nest.lines)
    blocks *= (planned_extent(out.tree, axis) + tile.turn[axis] - 1) / tile.turn[axis];
  if (blocks >= target.cores) return false;
  const int64_t tiles = planned_extent(out.tree, nest.along) / tile.turn[nest.along];
  const int64_t wanted = std::min(kBlocksPerCore * target.cores / blocks, tiles / kTilesOfChunk);
  const auto chunks = static_cast<int64_t>(
      std::bit_floor(static_cast<uint64_t>(std::clamp<int64_t>(wanted, 0, kMostChunks))));
  if (chunks < 2) return false;
  return out.try_take(ChunkStep{{out.tree.axes[nest.along].name}, chunks, Combine::Phase});
}

}  // namespace

bool serves_scans(const LoopTree& tree) { return scan_nest(tree).has_value(); }

std::optional<Refusal> tile_scans(Scheduled& out, const Target& target) {
  auto nest = scan_nest(out.tree);
  if (nest) {
    collapse_axes(out, nest->lines);
    nest = scan_nest(out.tree);
  }
  if (!nest)
    return Refusal{&codes::kNoRule, "no rule can choose the steps for a scan beside other loops",
                   ""};
  const bool gpu = target.kind == TargetKind::Gpu;
  const ScanTile tile =
      gpu ? tile_of_gpu(out.tree, *nest, target) : tile_of_cpu(out.tree, *nest, target);
  const auto name = [&](size_t axis) { return out.tree.axes[axis].name; };
  // A task of a CPU takes several lines if they are short.
  int64_t together = 1;
  if (!gpu && !nest->lines.empty() && tile.turn[nest->lines.back()] == 1) {
    const int64_t lines = planned_extent(out.tree, nest->lines.back());
    together = std::clamp<int64_t>(kTaskElements / planned_extent(out.tree, nest->along), 1,
                                   std::max<int64_t>(lines / std::max(target.cores, 1), 1));
  }

  std::vector<std::string> scans;
  for (const LoopValue& value : out.tree.values) scans.push_back(value.name);
  const auto cut = [&](size_t axis) {
    const int64_t turn = tile.turn[axis];
    const bool covered = out.tree.axes[axis].extent.is_constant(turn);
    out.take(SplitStep{{name(axis)}, turn, /*padded=*/true});
    out.take(WholeStep{{name(axis), covered ? 1 : 2}});
    return covered;
  };
  std::vector<std::string> outer;
  for (const size_t axis : nest->lines) {
    if (tile.turn[axis] > 1) {
      if (!cut(axis)) outer.push_back(name(axis));
      continue;
    }
    if (axis == nest->lines.back() && together > 1) {
      out.take(SplitStep{{name(axis)}, together});
      if (out.tree.axes[axis].extent.is_constant(together)) continue;
    }
    outer.push_back(name(axis));
  }
  deal_out(out, outer);
  if (tile.turn[nest->along] > 1) cut(nest->along);
  const bool chunked = gpu && chunk_lines(out, *nest, tile, target);
  // Whole tiles need no masks. (If a scan begins at the last element, its first tile is the one
  // that is not whole.)
  for (size_t axis = 0; axis < tile.turn.size(); ++axis) {
    if (tile.turn[axis] == 1 || (axis == nest->along && (nest->down || chunked))) continue;
    part_tail(out, {name(axis)}, tile.turn[axis]);
  }
  if (tile.turn[nest->along] == 1) return std::nullopt;
  for (const std::string& scan : scans) out.take(BindStep{{true, scan}, tile.layout()});
  if (!chunked) return std::nullopt;
  // Also binds the totals of the chunks, with the layout of the scan, and the values before each
  // chunk.
  const int64_t chunks = *out.tree.axes.back().extent.as_constant();
  for (size_t i = scans.size(); i < out.tree.values.size(); ++i) {
    const LoopValue& value = out.tree.values[i];
    if (value.name.starts_with(scans[0] + "_total"))
      out.take(BindStep{{true, value.name}, tile.layout()});
    else
      out.try_take(
          BindStep{{true, value.name}, spread({chunks}, {std::min(chunks, kWarpThreads)}, 1)});
  }
  return std::nullopt;
}

}  // namespace braze
