// tiles_gpu.cpp — loops without reductions on a GPU: threads along one axis, each with a few
// neighbours, so that a warp touches whole lines.
#include <algorithm>
#include <bit>

#include "compiler/loops/rules/facts.h"
#include "compiler/loops/rules/rules.h"
#include "ir/code/layout.h"

namespace braze {

namespace {

constexpr int64_t kBlockThreads = 256;
constexpr int64_t kAccessBytes = 16;
// Blocks a multiprocessor should have before its threads do more than one vector each.
constexpr int64_t kBlocksPerCore = 16;

int64_t power_of_two(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n)));
}

// Neighbours along the axis that one thread should access together: as many as 16 bytes hold, if
// all contiguous accesses are then aligned.
int64_t vector_along(const std::vector<TreeAccess>& accesses, const LoopAxis& axis) {
  int64_t vector = kAccessBytes / 2;
  size_t least = kAccessBytes;
  for (const TreeAccess& access : accesses) {
    if (access.stride(axis) != 1) {
      // Neighbours that lie apart are separate accesses, however many a thread has.
      if (access.stride(axis) > 1) vector = 1;
      continue;
    }
    least = std::min(least, access.bytes);
    const int64_t divisor = access.offset.substitute(axis.name, 0).divisor();
    while (vector > 1 && divisor % vector != 0) vector /= 2;
  }
  return std::min(vector, std::max<int64_t>(kAccessBytes / static_cast<int64_t>(least), 1));
}

// Whether threads along the lanes would jump where those along another axis would not.
bool crosses(const LoopTree& tree, const std::vector<TreeAccess>& accesses,
             const std::vector<size_t>& axes, size_t lane) {
  if (planned_extent(tree, lane) < kWarpThreads) return false;
  return std::any_of(accesses.begin(), accesses.end(), [&](const TreeAccess& access) {
    if (access.irregular || access.store || access.stride(tree.axes[lane]) <= 1) return false;
    return std::any_of(axes.begin(), axes.end(), [&](size_t axis) {
      return axis != lane && access.stride(tree.axes[axis]) == 1 &&
             planned_extent(tree, axis) >= kWarpThreads;
    });
  });
}

}  // namespace

std::optional<Refusal> tile_for_gpu(Scheduled& out, const Target& target) {
  const LoopTree& tree = out.tree;
  const std::vector<size_t> axes = nest_axes(tree).value();
  if (axes.empty()) return Refusal{&codes::kNoRule, "no rule serves a single element", ""};
  const auto touched = accesses(tree);
  const size_t lane = best_lane_axis(tree, touched, axes, kWarpThreads);
  if (crosses(tree, touched, axes, lane))
    return Refusal{&codes::kNoRule, "no rule serves accesses that cross the lanes", ""};
  int64_t total = 1;
  for (const size_t axis : axes)
    total = std::min(total * planned_extent(tree, axis), int64_t{1} << 40);
  const int64_t extent = planned_extent(tree, lane);
  int64_t vector = vector_along(touched, tree.axes[lane]);
  // Few elements: rather more threads than long vectors.
  int64_t threads = kBlockThreads;
  while (threads > 64 && total / threads < 2 * target.cores) threads /= 2;
  while (vector > 1 && total / (threads * vector) < 2 * target.cores) vector /= 2;
  if (extent == 1) return Refusal{&codes::kNoRule, "no rule serves a single element", ""};
  const int64_t along = std::min(threads, power_of_two((extent + vector - 1) / vector));
  int64_t tile = along * vector;
  // What a row does not fill takes rows beside it, along the longest other axis.
  std::optional<size_t> other;
  for (size_t i = axes.size(); i-- > 0;)
    if (axes[i] != lane && (!other || planned_extent(tree, axes[i]) > planned_extent(tree, *other)))
      other = axes[i];
  int64_t rows = 1;
  if (other && along < threads)
    rows = std::min(threads / along, power_of_two(planned_extent(tree, *other)));
  const int64_t used = std::max(rows * along, kWarpThreads);
  // Two vectors in flight where there is enough to do.
  if (extent >= 2 * tile && total / (2 * used * vector) >= kBlocksPerCore * target.cores) tile *= 2;

  std::vector<std::string> outer;
  const auto name = [&](size_t axis) { return out.tree.axes[axis].name; };
  for (const size_t axis : axes) {
    const int64_t turn = axis == lane ? tile : axis == other ? rows : 1;
    const Expr end = tree.axes[axis].extent;
    const bool covered = turn > 1 && end.is_constant(turn);
    if (turn > 1) out.take(SplitStep{{name(axis)}, turn, end.range().max <= turn});
    if (turn > 1) out.take(WholeStep{{name(axis), covered ? 1 : 2}});
    if (!covered) outer.push_back(name(axis));
  }
  for (size_t i = 1; i < outer.size(); ++i) out.take(TupleStep{{outer[0]}, {outer[i]}});
  if (!outer.empty()) out.take(OnStep{{outer[0]}, Machine::Grid});
  const Expr end = tree.axes[lane].extent;
  if (!end.is_multiple_of(tile) && end.range().max > tile)
    out.take(PartStep{{name(lane)}, {tree.axes[lane].index(), IndexComparison::Kind::Lt, end}});

  // Threads and neighbours along the lanes, which are the last of a tile's dimensions.
  std::vector<int64_t> extents = {tile}, shared = {along};
  if (rows > 1) {
    if (*other > lane)
      return Refusal{&codes::kNoRule, "no rule serves lanes along an outer axis", ""};
    extents.insert(extents.begin(), rows);
    shared.insert(shared.begin(), rows);
  }
  if (rows * along < kWarpThreads) shared.back() *= kWarpThreads / (rows * along);
  const Layout layout = spread(extents, shared, vector);
  std::vector<std::string> stored;
  for_each_task(tree.phases[0], [&](const LoopTask& task, const auto&) {
    stored.push_back(tree.tensors[task.target].name);
  });
  for (const std::string& tensor : stored) out.take(BindStep{{false, tensor}, layout});
  return std::nullopt;
}

}  // namespace braze
