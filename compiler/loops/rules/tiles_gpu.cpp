// tiles_gpu.cpp — the rule for loops without reductions on a GPU: threads run along one axis, each
// with a few neighbours, so that a warp accesses whole memory lines.
#include <algorithm>
#include <bit>
#include <numeric>

#include "compiler/loops/rules/facts.h"
#include "compiler/loops/rules/rules.h"
#include "ir/code/layout.h"

namespace braze {

namespace {

constexpr int64_t kBlockThreads = 256;
// A multiprocessor should have this many blocks before its threads take more than one vector each.
constexpr int64_t kBlocksPerCore = 16;

bool crosses(const LoopTree& tree, const TreeAccess& access, size_t lane, size_t axis) {
  return !access.irregular && !access.store && access.stride(tree.axes[lane]) > 1 && axis != lane &&
         access.stride(tree.axes[axis]) == 1 && planned_extent(tree, axis) >= kWarpThreads;
}

// An axis along which threads can read neighbours, if elements of some load are far apart along the
// lanes.
std::optional<size_t> crossing_axis(const LoopTree& tree, const std::vector<TreeAccess>& accesses,
                                    const std::vector<size_t>& axes, size_t lane) {
  if (planned_extent(tree, lane) < kWarpThreads) return std::nullopt;
  for (const TreeAccess& access : accesses)
    for (const size_t axis : axes)
      if (crosses(tree, access, lane, axis)) return axis;
  return std::nullopt;
}

// How many neighbours a thread accesses together on both sides of a tile that is transposed: two if
// all elements have 2 bytes, so that a warp accesses whole lines of 128 bytes.
int64_t transposed_vector(const LoopTree& tree, const std::vector<TreeAccess>& accesses,
                          size_t lane, size_t other) {
  constexpr int64_t kPair = 2;
  for (const size_t axis : {lane, other})
    if (planned_extent(tree, axis) < kPair * kWarpThreads) return 1;
  for (const TreeAccess& access : accesses)
    for (const size_t axis : {lane, other}) {
      if (access.stride(tree.axes[axis]) != 1) continue;
      const int64_t divisor = access.offset.substitute(tree.axes[axis].name, 0).divisor();
      if (access.irregular || access.bytes != 2 || divisor % kPair != 0) return 1;
    }
  return kPair;
}

// The tile of a block in a nest, and how the block's threads share it.
struct BlockTile {
  size_t lane = 0;
  std::optional<size_t> other;  // the axis of its rows
  int64_t tile = 1, rows = 1;
  int64_t along = 1, across = 1;  // threads
  int64_t vector = 1;             // neighbours along the lanes in one thread
  bool turned = false;            // whether loads run along the rows
};

// The number of equal parts of an axis, within each of which every condition on its index has one
// value: what is padded or joined is computed in another way in each part. 1 if the axis has no
// such parts.
int64_t count_parts(const LoopTree& tree, size_t axis) {
  const auto boundaries = boundaries_along(tree, axis);
  if (!boundaries) return 1;
  const int64_t extent = planned_extent(tree, axis);
  int64_t part = extent;
  for (const int64_t boundary : *boundaries) part = std::gcd(part, boundary);
  return extent / std::max<int64_t>(part, 1);
}

// How many threads share a row of a block: one for each vector, in powers of two. If that leaves
// many threads idle, fewer threads take several vectors each, as long as together they access whole
// memory lines.
int64_t threads_of_row(int64_t extent, int64_t vector, int64_t most, bool may_take_several) {
  constexpr int64_t kLineElements = 64, kMostElements = 16;
  const auto covered = [&](int64_t threads) {
    const int64_t turn = threads * vector;
    return (extent + turn - 1) / turn * turn;
  };
  int64_t out = std::min(most, ceil_power_of_two((extent + vector - 1) / vector));
  if (!may_take_several || out * vector < extent) return out;
  for (int64_t fewer = out / 2; fewer * vector >= kLineElements; fewer /= 2)
    if (8 * covered(fewer) <= 7 * covered(out) && covered(fewer) <= fewer * kMostElements)
      out = fewer;
  return out;
}

// How many neighbours one thread should have: those that all accesses take at once, or those that
// stores do, if loads are contiguous but begin anywhere. What a thread then loads element by
// element lies in lines that stay near the multiprocessor, and stores take fewer instructions. This
// was measured for elements of 4 bytes, on an H200: 268 MB rolled along their rows took 134 us
// instead of 148.
int64_t vector_of_thread(const std::vector<TreeAccess>& touched, const LoopAxis& lane) {
  const int64_t whole = vector_along(touched, lane);
  std::vector<TreeAccess> stores;
  for (const TreeAccess& access : touched) {
    const int64_t stride = access.stride(lane);
    if (access.bytes != 4 || stride > 1 || (access.store && stride != 1)) return whole;
    if (access.store) stores.push_back(access);
  }
  return std::max(whole, vector_along(stores, lane));
}

BlockTile choose_block(const LoopTree& tree, const std::vector<size_t>& axes,
                       const Target& target) {
  BlockTile out;
  const auto touched = accesses(tree);
  const size_t lane = out.lane = best_lane_axis(tree, touched, axes, kWarpThreads, true);
  out.other = crossing_axis(tree, touched, axes, lane);
  if (out.other) {
    // Square tiles are transposed on the way.
    out.vector = transposed_vector(tree, touched, lane, *out.other);
    out.along = kWarpThreads;
    out.tile = out.rows = kWarpThreads * out.vector;
    out.across = kBlockThreads / kWarpThreads;
    out.turned = true;
    return out;
  }
  int64_t total = 1;
  for (const size_t axis : axes)
    total = std::min(total * planned_extent(tree, axis), int64_t{1} << 40);
  const int64_t extent = planned_extent(tree, lane);
  out.vector = vector_of_thread(touched, tree.axes[lane]);
  // If there are few elements, more threads are better than longer vectors.
  int64_t threads = kBlockThreads;
  while (threads > 64 && total / threads < 2 * target.cores) threads /= 2;
  while (out.vector > 1 && total / (threads * out.vector) < 2 * target.cores) out.vector /= 2;
  // If a row does not fill a block, the block takes several rows along the longest other axis.
  for (size_t i = axes.size(); i-- > 0;)
    if (axes[i] != lane &&
        (!out.other || planned_extent(tree, axes[i]) > planned_extent(tree, *out.other)))
      out.other = axes[i];
  const auto along = [&] {
    return threads_of_row(extent, out.vector, threads,
                          out.other && tree.axes[lane].extent.as_constant());
  };
  out.along = along();
  if (out.other && out.along < threads) {
    // One thread can have neighbours along the last dimension only.
    if (*out.other > lane) out.vector = 1;
    out.along = along();
    out.rows = out.across =
        std::min(threads / out.along, ceil_power_of_two(planned_extent(tree, *out.other)));
  }
  out.tile = out.along * out.vector;
  if (out.rows > 1) out.tile *= (extent + out.tile - 1) / out.tile;
  const int64_t used = std::max(out.across * out.along, kWarpThreads);
  // If there is enough work, a thread has two vectors in flight.
  if (total / (2 * used * out.vector) >= kBlocksPerCore * target.cores) {
    // A warp whose lanes are in two parts of a row would compute both for all its elements.
    constexpr int64_t kMostParts = 4, kLeastThreads = 4;
    const int64_t parts = count_parts(tree, lane);
    if (out.tile == extent && out.rows > 1 && parts > 1 && parts <= kMostParts &&
        std::has_single_bit(static_cast<uint64_t>(parts)) && out.along >= parts * kLeastThreads &&
        planned_extent(tree, *out.other) >= parts * out.rows) {
      out.along /= parts;
      out.rows = out.across *= parts;
    } else if (extent >= 2 * out.tile)
      out.tile *= 2;
    else if (out.rows > 1 && planned_extent(tree, *out.other) >= 2 * out.rows)
      out.rows *= 2;
  }
  if (out.across * out.along < kWarpThreads) out.along *= kWarpThreads / (out.across * out.along);
  return out;
}

// Loads across the lanes become values in the loop over `axis`, which are bound along the rows.
void load_across(Scheduled& out, const BlockTile& block, const std::string& axis,
                 const Layout& layout) {
  const LoopTree& tree = out.tree;
  const auto crossing = [&](const TreeAccess& access) {
    return crosses(tree, access, block.lane, *block.other);
  };
  std::vector<std::string> tensors;
  for (const TreeAccess& access : accesses(tree)) {
    const std::string& name = tree.tensors[access.tensor].name;
    if (crossing(access) && std::find(tensors.begin(), tensors.end(), name) == tensors.end())
      tensors.push_back(name);
  }
  for (const std::string& tensor : tensors) out.try_take(LoadStep{tensor, {axis}});
  std::vector<std::string> values;
  for_each_task(tree.phases[0], [&](const LoopTask& task, const auto&) {
    if (task.makes_value() && std::ranges::any_of(accesses(tree, task), crossing))
      values.push_back(tree.values[task.target].name);
  });
  for (const std::string& value : values) out.take(BindStep{{true, value}, layout});
}

}  // namespace

void tile_for_gpu(Scheduled& out, const Target& target) {
  const LoopTree& tree = out.tree;
  const std::vector<size_t> axes = nest_axes(tree).value();
  const auto name = [&](size_t axis) { return out.tree.axes[axis].name; };
  const auto bind_stores = [&](const Layout& layout) {
    std::vector<std::string> stored;
    for_each_task(tree.phases[0], [&](const LoopTask& task, const auto&) {
      if (!task.makes_value()) stored.push_back(tree.tensors[task.target].name);
    });
    for (const std::string& tensor : stored) out.take(BindStep{{false, tensor}, layout});
  };
  const Layout one{{std::vector<Digit>()}};  // the layout of a tile of one element
  if (axes.empty()) return bind_stores(one);
  const BlockTile block = choose_block(tree, axes, target);
  const auto [lane, other] = std::pair(block.lane, block.other);

  std::vector<std::string> outer;
  for (const size_t axis : axes) {
    const int64_t turn = axis == lane ? block.tile : axis == other ? block.rows : 1;
    const Expr end = tree.axes[axis].extent;
    const bool covered = turn > 1 && end.is_constant(turn);
    if (turn > 1) out.take(SplitStep{{name(axis)}, turn, end.range().max <= turn});
    if (turn > 1) out.take(WholeStep{{name(axis), covered ? 1 : 2}});
    if (!covered) outer.push_back(name(axis));
  }
  deal_out(out, outer);
  part_tail(out, {name(lane)}, block.tile);

  // Threads and their neighbours, first along the lanes and then along the rows.
  const auto dealt = [&](bool lanes_last) {
    if (block.rows == 1) return spread({block.tile}, {block.along}, block.vector);
    Layout layout =
        lanes_last ? spread({block.rows, block.tile}, {block.across, block.along}, block.vector)
                   : spread({block.tile, block.rows}, {block.across, block.along}, block.vector);
    if (!lanes_last) std::swap(layout.axes[0], layout.axes[1]);
    if (*other > lane) std::swap(layout.axes[0], layout.axes[1]);
    return layout;
  };
  if (block.turned && !outer.empty()) {
    // If a tile has all lanes, there is no loop over them.
    const bool in_lanes = std::ranges::count(outer, name(lane)) > 0;
    load_across(out, block, in_lanes ? name(lane) : outer[0], dealt(/*lanes_last=*/false));
  }
  bind_stores(block.tile == 1 && block.rows == 1 ? one : dealt(/*lanes_last=*/true));
}

}  // namespace braze
