// gpu_pointwise.cpp — the family without reductions on a GPU: threads along the axis most accesses
// run along, each with a few neighbours, so that a warp touches whole lines.
#include <algorithm>
#include <bit>

#include "compiler/tiling/families.h"
#include "ir/code/layout.h"

namespace braze {

int64_t gpu_vector(const std::vector<AccessInfo>& accesses, const SpaceAxis& axis) {
  constexpr int64_t kAccessBytes = 16;
  int64_t vector = 8;
  size_t least = 16;
  for (const AccessInfo& access : accesses) {
    if (access.stride(axis) != 1) {
      // Neighbours that lie apart are separate accesses, however many a thread has.
      if (access.stride(axis) > 1) vector = 1;
      continue;
    }
    least = std::min(least, access.bytes);
    // Only vectors that begin at a multiple of their size are one access.
    const int64_t divisor = access.offset.substitute(axis.symbol.symbol_name(), 0).divisor();
    while (vector > 1 && divisor % vector != 0) vector /= 2;
  }
  return std::min(vector, std::max<int64_t>(kAccessBytes / static_cast<int64_t>(least), 1));
}

namespace {

constexpr int64_t kBlockThreads = 256;
// Blocks a multiprocessor should have before its threads do more than one vector each.
constexpr int64_t kBlocksPerCore = 16;

int64_t threads_along(int64_t extent, int64_t most) {
  return std::min<int64_t>(most,
                           static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(extent))));
}

// The axis other than the lanes' along which an access runs that jumps along the lanes.
std::optional<size_t> crossing_axis(const std::vector<AccessInfo>& accesses, const Space& space,
                                    size_t lane) {
  if (planned_extent(space.parallel[lane].extent) < kWarpThreads) return std::nullopt;
  for (const AccessInfo& access : accesses) {
    if (access.irregular || access.store || access.stride(space.parallel[lane]) <= 1) continue;
    for (size_t p = 0; p < space.parallel.size(); ++p)
      if (p != lane && access.stride(space.parallel[p]) == 1 &&
          planned_extent(space.parallel[p].extent) >= kWarpThreads)
        return p;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Schedule> schedule_gpu_pointwise(const TilingRequest& request, const Space& space) {
  if (space.passes.size() != 1 || !space.passes[0].reduces.empty() ||
      !space.passes[0].inner.empty())
    return std::nullopt;
  const size_t rank = space.parallel.size();
  Schedule schedule{.family = "pointwise",
                    .block = std::vector<int64_t>(rank, 1),
                    .tile = std::vector<int64_t>(rank, 1),
                    .threads = {kWarpThreads}};
  if (rank == 0) return schedule;

  const auto touched = accesses(request, space.passes[0]);
  const size_t lane = best_lane_axis(touched, space.parallel, kWarpThreads).index;
  const int64_t total = planned_elements(space.parallel);
  const int64_t extent = std::max<int64_t>(planned_extent(space.parallel[lane].extent), 1);
  schedule.lane_axis = static_cast<int64_t>(lane);
  if (const auto crossing = crossing_axis(touched, space, lane)) {
    // Square tiles that are turned on their way.
    schedule.tile[lane] = schedule.tile[*crossing] = kWarpThreads;
    schedule.block = schedule.tile;
    schedule.threads = {kBlockThreads / kWarpThreads, kWarpThreads};
    return schedule;
  }
  schedule.vector = gpu_vector(touched, space.parallel[lane]);
  // Few elements: rather more threads than long vectors.
  int64_t threads = kBlockThreads;
  while (threads > 64 && total / threads < 2 * request.target.cores) threads /= 2;
  while (schedule.vector > 1 && total / (threads * schedule.vector) < 2 * request.target.cores)
    schedule.vector /= 2;
  const int64_t along = threads_along((extent + schedule.vector - 1) / schedule.vector, threads);
  schedule.tile[lane] = along * schedule.vector;
  // What a row does not fill takes rows beside it, along the longest other axis.
  size_t other = rank;
  for (size_t p = rank; p-- > 0;)
    if (p != lane && (other == rank || planned_extent(space.parallel[p].extent) >
                                           planned_extent(space.parallel[other].extent)))
      other = p;
  schedule.threads = {along};
  if (other < rank && along < threads) {
    const int64_t rows = threads_along(
        std::max<int64_t>(planned_extent(space.parallel[other].extent), 1), threads / along);
    if (rows > 1) {
      schedule.tile[other] = rows;
      schedule.threads = {rows, along};
    }
  }
  int64_t used = 1;
  for (const int64_t n : schedule.threads) used *= n;
  if (used < kWarpThreads) schedule.threads.back() *= kWarpThreads / used;
  // Two vectors in flight where there is enough to do.
  if (extent >= 2 * schedule.tile[lane] &&
      total / (2 * used * schedule.vector) >= kBlocksPerCore * request.target.cores)
    schedule.tile[lane] *= 2;
  schedule.block = schedule.tile;
  return schedule;
}

}  // namespace braze
