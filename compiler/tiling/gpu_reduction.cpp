// gpu_reduction.cpp — the family of reductions on a GPU. Along rows: if one row or several fit in
// the registers of a block, they stay there; otherwise the whole block walks them. Along columns:
// lanes are on neighbouring columns and warps on rows, and warps are folded at the end.
#include <algorithm>
#include <bit>

#include "compiler/tiling/families.h"
#include "ir/code/layout.h"

namespace braze {

namespace {

constexpr int64_t kBlockThreads = 256;
constexpr int64_t kMostThreads = 1024;
// Elements of each input of a row that a thread can keep without spilling.
constexpr int64_t kMostKept = 32;
// Bytes of an input that a thread should have: two accesses. Kernels are slower with one access;
// with four they are no faster and have twice the code.
constexpr int64_t kFewBytes = 32;
// Threads of each block of a cluster that shares a row. The first number with which the row fits is
// taken.
constexpr int64_t kClusterThreads[] = {256, 512};
// Elements of a thread at each step of a row that is walked.
constexpr int64_t kWalkElements = 4;
// A reduction with few results is cut into chunks. Their number is part of the Schedule.
constexpr int64_t kMostChunks = 256;
constexpr int64_t kChunkElements = 8192;
// The number of threads with which a multiprocessor hides the latency of its memory.
constexpr int64_t kMultiprocessorThreads = 1024;

// Whether several passes run over a row, so that it pays to keep it.
bool walks_rows_again(const Space& space) {
  const auto along = [](const Pass& pass) { return !pass.inner.empty(); };
  const bool rows = std::all_of(space.passes.begin(), space.passes.end(),
                                [](const Pass& pass) { return pass.inner.size() <= 1; });
  return rows && std::count_if(space.passes.begin(), space.passes.end(), along) > 1;
}

// How many neighbours along the row one thread should access together. The row is padded to a
// multiple of all threads' vectors, which costs registers and instructions, more of them per byte
// for narrow elements. Longer vectors are worth 7 % of a row of 2-byte elements and 14 % of one of
// 4-byte elements, or more if a warp would otherwise access less than 128 bytes. The alignment of
// rows matters less, because tiles may begin before the row (the step `lead`). `kept` is the number
// of elements that a thread may keep of a row in registers; 0 if the row is walked.
int64_t row_vector(const std::vector<AccessInfo>& touched, const SpaceAxis& axis, int64_t length,
                   int64_t threads, int64_t kept, bool may_lead) {
  constexpr int64_t kAccessBytes = 16, kLaneBytes = 4;
  const int64_t aligned = gpu_vector(touched, axis);
  int64_t least = kAccessBytes;
  bool contiguous = false, apart = false;
  for (const AccessInfo& access : touched) {
    apart = apart || access.stride(axis) > 1;
    if (access.stride(axis) != 1) continue;
    contiguous = true;
    least = std::min(least, static_cast<int64_t>(access.bytes));
  }
  const bool leads = may_lead && contiguous && !apart;
  int64_t vector = leads ? std::min<int64_t>(kAccessBytes / least, 8) : aligned;
  const auto fits = [&] {
    const int64_t covered = length + (vector > aligned ? vector - 1 : 0);
    const int64_t padded = ceil_divide(covered, threads * vector) * threads * vector;
    const bool fills = 28 * padded <= (28 + least) * length || vector * least <= kLaneBytes;
    return length >= kWarpThreads * vector && (kept == 0 || (fills && padded <= threads * kept));
  };
  while (vector > 1 && !fits()) vector /= 2;
  return vector;
}

// Chooses the threads along a row and the tile of the row.
void deal_row(const TilingRequest& request, const Space& space, const Pass& main,
              const std::vector<AccessInfo>& touched, Schedule& schedule) {
  const SpaceAxis& axis = main.inner.back();
  const int64_t length = std::max<int64_t>(planned_extent(axis.extent), 1);
  schedule.vector = gpu_vector(touched, axis);
  while (schedule.vector > 1 && length < kWarpThreads * schedule.vector) schedule.vector /= 2;
  int64_t inputs = 0;
  size_t least = sizeof(double);
  for (const AccessInfo& access : touched) {
    inputs += !access.store && access.uses(axis);
    if (access.uses(axis)) least = std::min(least, access.bytes);
  }
  const int64_t kept =
      std::clamp<int64_t>(3 * kMostKept / std::max<int64_t>(inputs, 1), schedule.vector, kMostKept);
  const int64_t few = kFewBytes / static_cast<int64_t>(least);
  // A warp that works alone needs no barriers. A longer row gets as many threads as it can use: the
  // power of two that gives each thread about `few` elements, or more threads if a thread could not
  // keep its part.
  int64_t along = kWarpThreads;
  if (length > kWarpThreads * kept) {
    const int64_t wanted = std::max(ceil_divide(2 * length, 3 * few), ceil_divide(length, kept));
    along = std::clamp(ceil_power_of_two(wanted), kWarpThreads, kMostThreads);
  }
  bool resident = main.inner.size() == 1 && length <= along * kept;
  if (!resident && walks_rows_again(space)) {
    // Several small blocks keep what one block cannot. A multiprocessor then loads for one block
    // while it stores for another.
    for (const int64_t threads : kClusterThreads) {
      const int64_t blocks = ceil_power_of_two(ceil_divide(length, threads * kept));
      if (blocks > request.target.cluster_blocks) continue;
      along = threads;
      schedule.cluster = blocks;
      resident = true;
      break;
    }
  }
  const int64_t aligned = schedule.vector, threads = along * schedule.cluster;
  // A row that is kept on chip and walked again lies there by index.
  const bool may_lead = along > kWarpThreads && (resident || !walks_rows_again(space));
  schedule.vector = row_vector(touched, axis, length, threads, resident ? kept : 0, may_lead);
  const bool leads = schedule.vector > aligned;
  const int64_t unit = threads * schedule.vector;
  const int64_t covered = length + (leads ? schedule.vector - 1 : 0);
  schedule.inner_tile = resident ? ceil_divide(covered, unit) * unit
                                 : along * std::max(kWalkElements, schedule.vector);
  schedule.threads = {along};
  const size_t rank = space.parallel.size();
  if (rank == 0 || leads) return;
  const int64_t rows = std::min(
      {kBlockThreads / along, ceil_power_of_two(planned_extent(space.parallel[rank - 1].extent)),
       floor_power_of_two(planned_elements(space.parallel) / (2 * request.target.cores))});
  if (rows <= 1) return;
  schedule.tile[rank - 1] = schedule.block[rank - 1] = rows;
  schedule.threads = {rows, along};
}

// Lanes are on columns. If the columns alone do not fill the machine, warps are on the reduced
// rows.
void deal_columns(const TilingRequest& request, const Space& space, const Pass& main,
                  const std::vector<AccessInfo>& touched, size_t column, Schedule& schedule) {
  const SpaceAxis& axis = space.parallel[column];
  const int64_t extent = std::max<int64_t>(planned_extent(axis.extent), 1);
  schedule.family = "column";
  schedule.lane_axis = static_cast<int64_t>(column);
  schedule.vector = std::min<int64_t>(gpu_vector(touched, axis), 4);
  while (schedule.vector > 1 && extent < kWarpThreads * schedule.vector) schedule.vector /= 2;
  const int64_t length =
      main.inner.empty() ? 1 : std::max<int64_t>(planned_extent(main.inner.back().extent), 1);
  const int64_t threads = ceil_divide(planned_elements(space.parallel), schedule.vector);
  const int64_t filling =
      ceil_power_of_two(ceil_divide(request.target.cores * kMultiprocessorThreads, threads));
  const int64_t warps =
      std::min({kBlockThreads / kWarpThreads, ceil_power_of_two(length), filling});
  const int64_t along = std::min(warps == filling ? kBlockThreads / warps : kWarpThreads,
                                 ceil_power_of_two(ceil_divide(extent, schedule.vector)));
  schedule.tile[column] = schedule.block[column] = along * schedule.vector;
  schedule.threads = {along};
  if (!main.inner.empty()) {
    // A thread takes four rows in a turn, so that their loads overlap.
    schedule.inner_tile = std::min(4 * warps, ceil_power_of_two(length));
    if (schedule.inner_tile > 1) schedule.threads = {warps, along};
  }
}

}  // namespace

std::optional<Schedule> schedule_gpu_reduction(const TilingRequest& request, const Space& space) {
  if (space.passes.empty()) return std::nullopt;
  const size_t rank = space.parallel.size();
  Schedule schedule{.family = "row",
                    .block = std::vector<int64_t>(rank, 1),
                    .tile = std::vector<int64_t>(rank, 1),
                    .threads = {kWarpThreads}};
  const Pass& main = longest_pass(space);  // it determines the axes
  if (rank == 0 && main.inner.empty()) return schedule;
  const auto touched = accesses(request, main);
  double row_quality = -1;
  if (!main.inner.empty()) row_quality = lane_quality(touched, main.inner.back(), kWarpThreads);
  const auto [column, column_quality] = best_lane_axis(touched, space.parallel, kWarpThreads);
  if (row_quality >= column_quality)
    deal_row(request, space, main, touched, schedule);
  else
    deal_columns(request, space, main, touched, column, schedule);

  int64_t used = 1;
  for (const int64_t n : schedule.threads) used *= n;
  if (used < kWarpThreads) schedule.threads.back() *= kWarpThreads / used;

  // If there are few instances, one pass of reductions and much to reduce, the pass is cut into
  // chunks.
  int64_t instances = 1;
  for (size_t p = 0; p < rank; ++p)
    instances *= ceil_divide(std::max<int64_t>(planned_extent(space.parallel[p].extent), 1),
                             schedule.block[p]);
  if (splittable(request, space) && instances < 2 * request.target.cores) {
    const int64_t per_instance =
        planned_elements(main.inner) *
        (schedule.lane_axis >= 0 ? schedule.tile[static_cast<size_t>(schedule.lane_axis)] : 1);
    const int64_t units = ceil_divide(planned_extent(main.inner.front().extent),
                                      main.inner.size() == 1 ? schedule.inner_tile : 1);
    const int64_t wanted =
        ceil_power_of_two(8 * request.target.cores / std::max<int64_t>(instances, 1));
    schedule.split =
        floor_power_of_two(std::min({wanted, kMostChunks, per_instance / kChunkElements, units}));
  }
  return schedule;
}

}  // namespace braze
