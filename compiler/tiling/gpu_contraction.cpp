// gpu_contraction.cpp — products whose factors run along different parallel axes, on a GPU's
// ordinary units: a block of accumulators in the registers of each thread. Large products copy
// slices of their factors on chip, where a block's threads share them; small ones load them as
// they multiply.
#include <algorithm>
#include <bit>
#include <span>

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

// A block's tile for factors that are copied on chip, and its threads. `rate`: of multiplications,
// while a multiprocessor is busy, beside the first.
struct SlicedTile {
  int64_t rows, columns;
  std::vector<int64_t> threads;
  double rate;
};
constexpr int64_t kSlice = 8;
constexpr int64_t kLeastDepth = 8 * kSlice;   // shorter products are over before copies pay
constexpr double kLeastProducts = 1 << 23;    // smaller ones leave most threads without work
constexpr int64_t kMostFactors = 4;           // an array of registers has six axes at most
constexpr int64_t kTwoBlocksRegisters = 128;  // of a thread, of blocks of 256
const std::vector<SlicedTile>& sliced_tiles() {
  static const std::vector<SlicedTile> tiles = {
      {128, 128, {16, 16}, 1.0}, {128, 64, {16, 16}, 0.85}, {64, 128, {8, 32}, 0.85},
      {64, 64, {8, 16}, 0.75},   {32, 64, {4, 16}, 0.5},    {64, 32, {8, 8}, 0.5}};
  return tiles;
}

// The tile that takes least time, all multiprocessors working side by side.
const SlicedTile& best_tile(int64_t rows, int64_t columns, int64_t batches, int64_t cores) {
  const auto time = [&](const SlicedTile& tile) {
    const int64_t blocks = batches * ((rows + tile.rows - 1) / tile.rows) *
                           ((columns + tile.columns - 1) / tile.columns);
    return static_cast<double>((blocks + cores - 1) / cores * tile.rows * tile.columns) / tile.rate;
  };
  return *std::min_element(
      sliced_tiles().begin(), sliced_tiles().end(),
      [&](const SlicedTile& a, const SlicedTile& b) { return time(a) < time(b); });
}

// Whether two blocks of the largest tile can share a multiprocessor's registers: nothing is
// computed beside the products, and vectors are copied.
bool lean(const TilingRequest& request, const Space& space, const std::vector<Factor>& found) {
  constexpr double kMostFlops = 4;  // of an element, after its sum
  double flops_after = 0;
  for (const Pass& pass : std::span(space.passes).subspan(1))
    flops_after += flops_per_element(request, pass);
  return found.size() == 2 && flops_after <= kMostFlops &&
         std::all_of(found.begin(), found.end(),
                     [](const Factor& f) { return !f.computed && f.vector > 1; });
}

// Copies pay where the product is large, and where each factor is there to be copied.
bool slices_pay(const std::vector<Factor>& found, double products, int64_t depth) {
  const auto lanes =
      std::count_if(found.begin(), found.end(), [](const Factor& f) { return f.lanes; });
  const auto all = static_cast<int64_t>(found.size());
  return lanes > 0 && lanes < all && all <= kMostFactors && depth >= kLeastDepth &&
         products >= kLeastProducts;
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
  const std::vector<SpaceAxis>& inner = space.passes[0].inner;
  const auto found = factors(request, space, space.parallel[lane], space.parallel[row]);
  const int64_t depth = std::max<int64_t>(planned_extent(inner.back().extent), 1);
  const double products = static_cast<double>(m) * static_cast<double>(n) *
                          static_cast<double>(batches) *
                          static_cast<double>(planned_elements(inner));
  const LoopForm* form = request.forms.find(space.passes[0].reduces[0].node);
  if (form->monoid && slices_pay(found, products, depth)) {
    const auto bytes = static_cast<int64_t>(size_of(compute_type(form->accumulator)));
    const SlicedTile& best = best_tile(m, n, batches, request.target.cores);
    Schedule schedule{.family = "dot",
                      .block = std::vector<int64_t>(rank, 1),
                      .tile = std::vector<int64_t>(rank, 1)};
    schedule.lane_axis = static_cast<int64_t>(lane);
    // Accumulators of eight bytes take the registers of two.
    const int64_t narrower = std::max<int64_t>(bytes / 4, 1);
    schedule.tile[row] = schedule.block[row] = best.rows / narrower;
    schedule.tile[lane] = schedule.block[lane] = best.columns;
    schedule.threads = best.threads;
    schedule.vector = 16 / std::max<int64_t>(bytes, 4);
    schedule.slice = kSlice;
    // On other machines the assembler would spill.
    if (request.target.name == "sm_90a" && best.rows * best.columns == 128 * 128 && narrower == 1 &&
        lean(request, space, found))
      schedule.registers = kTwoBlocksRegisters;
    return schedule;
  }
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
