// gpu_contraction.cpp — products whose factors run along different parallel axes, on a GPU's
// ordinary units: a block of accumulators in the registers of each thread.
#include <algorithm>
#include <bit>

#include "compiler/tiling/families.h"
#include "ir/code/layout.h"

namespace braze {

namespace {

int64_t ceil_power_of_two(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(n, 1))));
}

// One side of the block's tile: threads, and elements in each.
struct Side {
  int64_t threads = 16, each = 4;
  int64_t tile() const { return threads * each; }
};

Side side_of(int64_t extent) {
  Side side;
  const int64_t wanted = ceil_power_of_two(extent);
  while (side.each > 1 && side.threads * side.each > wanted) side.each /= 2;
  while (side.threads > 1 && side.threads > wanted) side.threads /= 2;
  return side;
}

}  // namespace

std::optional<Schedule> schedule_gpu_contraction(const TilingRequest& request, const Space& space) {
  const auto axes = factor_axes(request, space);
  if (!axes) return std::nullopt;
  const auto [lane, row] = *axes;
  const size_t rank = space.parallel.size();
  const int64_t n = std::max<int64_t>(planned_extent(space.parallel[lane].extent), 1);
  const int64_t m = std::max<int64_t>(planned_extent(space.parallel[row].extent), 1);
  Side columns = side_of(n), rows = side_of(m);
  // Threads that a short side leaves work along the other.
  while (columns.threads * rows.threads < 256 && columns.tile() < n) columns.threads *= 2;
  while (columns.threads * rows.threads < 256 && rows.tile() < m) rows.threads *= 2;
  int64_t batches = 1;
  for (size_t p = 0; p < rank; ++p)
    if (p != lane && p != row)
      batches *= std::max<int64_t>(planned_extent(space.parallel[p].extent), 1);
  // Enough blocks for all multiprocessors, by fewer elements in a thread.
  const auto blocks = [&] {
    return batches * ((n + columns.tile() - 1) / columns.tile()) *
           ((m + rows.tile() - 1) / rows.tile());
  };
  while (rows.each > 1 && blocks() < request.target.cores) rows.each /= 2;
  while (columns.each > 1 && blocks() < request.target.cores) columns.each /= 2;

  Schedule schedule{.family = "dot",
                    .block = std::vector<int64_t>(rank, 1),
                    .tile = std::vector<int64_t>(rank, 1)};
  schedule.lane_axis = static_cast<int64_t>(lane);
  schedule.tile[lane] = schedule.block[lane] = columns.tile();
  schedule.tile[row] = schedule.block[row] = rows.tile();
  schedule.vector = columns.each;
  schedule.unroll = 4;
  int64_t used = columns.threads * rows.threads;
  if (used < kWarpThreads) columns.threads *= kWarpThreads / used;
  if (schedule.tile[row] > 1)
    schedule.threads = {rows.threads, columns.threads};
  else
    schedule.threads = {columns.threads * rows.threads};
  return schedule;
}

}  // namespace braze
