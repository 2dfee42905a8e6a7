// reduction.cpp — the family of reductions on a CPU: over rows (vectors run along the reduced axis
// and are folded at the end) and over columns (vectors run along a parallel axis, and the reduced
// axes are walked in order).
#include <algorithm>

#include "compiler/tiling/families.h"

namespace braze {

namespace {

constexpr int64_t kInstanceElements = 16'384;
// A reduction with few results is cut into chunks. Their number is part of the Schedule and does
// not depend on the machine, because it determines the order of the sum.
constexpr int64_t kMostChunks = 16;
constexpr int64_t kChunkElements = 16'384;

}  // namespace

std::optional<Schedule> schedule_reduction(const TilingRequest& request, const Space& space) {
  if (space.passes.empty()) return std::nullopt;
  const size_t rank = space.parallel.size();
  Schedule schedule{.family = "row",
                    .block = std::vector<int64_t>(rank, 1),
                    .tile = std::vector<int64_t>(rank, 1)};
  const int64_t lanes = request.target.vector_lanes(4);
  const int64_t wide = lanes * (request.target.vector_registers >= 32 ? 4 : 2);

  const Pass& main = longest_pass(space);  // it determines the axis of the lanes
  const auto touched = accesses(request, main);
  double row_quality = -1;
  if (!main.inner.empty()) row_quality = lane_quality(touched, main.inner.back(), lanes);
  const auto [column, column_quality] = best_lane_axis(touched, space.parallel, lanes);
  if (rank == 0 && main.inner.empty()) return schedule;
  const int64_t inner = planned_elements(main.inner);
  const int64_t outer = planned_elements(space.parallel);
  if (row_quality >= column_quality) {
    const int64_t length = planned_extent(main.inner.back().extent);
    schedule.inner_tile = lanes;
    while (schedule.inner_tile < wide && schedule.inner_tile < length) schedule.inner_tile *= 2;
    if (rank > 0) {
      const int64_t rows =
          std::clamp<int64_t>(kInstanceElements / std::max<int64_t>(inner, 1), 1,
                              std::max<int64_t>(outer / (4 * request.target.cores), 1));
      schedule.block[rank - 1] =
          std::min(rows, std::max<int64_t>(planned_extent(space.parallel[rank - 1].extent), 1));
    }
  } else {
    schedule.family = "column";
    schedule.lane_axis = static_cast<int64_t>(column);
    const int64_t extent = planned_extent(space.parallel[column].extent);
    int64_t tile = wide;
    while (tile > lanes && extent / tile < 2 * request.target.cores) tile /= 2;
    schedule.tile[column] = schedule.block[column] = tile;
  }

  // If there are few instances, one pass of reductions and much to reduce, the pass is cut into
  // chunks.
  int64_t instances = 1;
  for (size_t p = 0; p < rank; ++p)
    instances *=
        (std::max<int64_t>(planned_extent(space.parallel[p].extent), 1) + schedule.block[p] - 1) /
        schedule.block[p];
  if (splittable(request, space) && instances < 8) {
    const int64_t per_instance = inner * (schedule.lane_axis >= 0 ? schedule.tile[column] : 1);
    const int64_t chunks = std::min(per_instance / kChunkElements,
                                    planned_extent(space.passes[0].inner.front().extent));
    schedule.split = std::clamp<int64_t>(chunks, 1, kMostChunks);
  }
  return schedule;
}

}  // namespace braze
