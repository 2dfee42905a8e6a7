// pointwise.cpp — the family without reductions: vectors along the axis most accesses run along.
#include <algorithm>

#include "compiler/tiling/families.h"

namespace braze {

namespace {

// Work of one instance: long enough to pay for its start, short enough to balance.
constexpr double kInstanceFlops = 40'000;
constexpr int64_t kLeastElements = 1024;
constexpr int64_t kMostElements = 32'768;
// Lanes that lie apart are loaded one by one: code of more such loads takes LLVM seconds.
constexpr int64_t kMostLoadsOfLanes = 1024;

}  // namespace

std::optional<Schedule> schedule_pointwise(const TilingRequest& request, const Space& space) {
  if (space.passes.size() != 1 || !space.passes[0].reduces.empty() ||
      !space.passes[0].inner.empty())
    return std::nullopt;
  const Pass& pass = space.passes[0];
  const size_t rank = space.parallel.size();
  Schedule schedule{.family = "pointwise",
                    .block = std::vector<int64_t>(rank, 1),
                    .tile = std::vector<int64_t>(rank, 1)};
  if (rank == 0) return schedule;

  const int64_t lanes = request.target.vector_lanes(4);
  const auto touched = accesses(request, pass);
  const size_t lane = best_lane_axis(touched, space.parallel, lanes).index;
  const int64_t extent = planned_extent(space.parallel[lane].extent);
  // Four vectors in flight hide latency where there are registers for them.
  int64_t tile = lanes * (request.target.vector_registers >= 32 ? 4 : 2);
  while (tile > lanes && tile / 2 >= extent) tile /= 2;
  const auto apart = std::count_if(touched.begin(), touched.end(), [&](const AccessInfo& access) {
    const int64_t stride = access.stride(space.parallel[lane]);
    return !access.store && stride != 0 && stride != 1;
  });
  while (tile > lanes && apart * tile > kMostLoadsOfLanes) tile /= 2;
  schedule.lane_axis = static_cast<int64_t>(lane);
  schedule.tile[lane] = tile;

  int64_t total = 1;
  for (const SpaceAxis& axis : space.parallel)
    total = std::min<int64_t>(total * std::max<int64_t>(planned_extent(axis.extent), 1),
                              int64_t{1} << 50);
  const double flops = std::max(flops_per_element(request, pass), 1.0);
  int64_t elements =
      std::clamp(static_cast<int64_t>(kInstanceFlops / flops), kLeastElements, kMostElements);
  elements = std::max<int64_t>(std::min(elements, total / std::max(request.target.cores, 1)), tile);
  schedule.block[lane] =
      std::min((elements + tile - 1) / tile, std::max<int64_t>((extent + tile - 1) / tile, 1)) *
      tile;
  // Accesses that run along another axis share cache lines between its neighbours.
  size_t other = rank;
  for (const AccessInfo& access : touched)
    for (size_t p = 0; p < rank; ++p)
      if (p != lane && access.stride(space.parallel[p]) == 1) other = p;
  int64_t left = std::max<int64_t>(elements / schedule.block[lane], 1);
  if (other < rank) {
    schedule.block[lane] = std::min<int64_t>(schedule.block[lane], std::max<int64_t>(tile, 64));
    schedule.block[other] =
        std::min<int64_t>(64, std::max<int64_t>(planned_extent(space.parallel[other].extent), 1));
    return schedule;
  }
  for (size_t p = rank; p-- > 0 && left > 1;) {
    if (p == lane) continue;
    const int64_t rows = std::max<int64_t>(planned_extent(space.parallel[p].extent), 1);
    schedule.block[p] = std::min(left, rows);
    left /= schedule.block[p];
  }
  return schedule;
}

}  // namespace braze
