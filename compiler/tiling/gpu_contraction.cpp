// gpu_contraction.cpp — the tiles of products on a GPU's ordinary units and the matrix units of
// warps, as compiler/loops/rules/products_gpu.cpp chooses them, for the price of a space.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <tuple>

#include "compiler/tiling/families.h"
#include "ir/code/layout.h"

namespace braze {

namespace {

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

// A block's tile for factors that are copied on chip, its threads and the steps of a slice.
// `rate`: multiply-adds of a full multiprocessor, beside those that its ordinary units can do.
struct SlicedTile {
  int64_t rows, columns;
  std::vector<int64_t> threads;
  int64_t slice;
  double rate;
};
constexpr int64_t kLeastDepth = 64;         // shorter products are over before copies pay
constexpr double kLeastProducts = 1 << 23;  // smaller ones leave most threads without work
constexpr int64_t kMostFactors = 4;         // an array of registers has six axes at most
constexpr int64_t kMostChunks = 32;
const std::vector<SlicedTile>& matrix_tiles() {
  static const std::vector<SlicedTile> tiles = {{128, 128, {16, 8}, 16, 2.4},
                                                {128, 64, {16, 8}, 16, 1.8},
                                                {64, 64, {16, 8}, 16, 1.5},
                                                {32, 32, {16, 4}, 16, 0.8}};
  return tiles;
}
const std::vector<SlicedTile>& sliced_tiles() {
  static const std::vector<SlicedTile> tiles = {{128, 128, {16, 16}, 8, 0.73},
                                                {64, 64, {16, 16}, 16, 0.59},
                                                {64, 64, {8, 16}, 16, 0.59},
                                                {32, 32, {8, 8}, 16, 0.45}};
  return tiles;
}

struct ProductSize {
  int64_t rows, columns, batches, depth;
  bool ahead;  // slices are copied ahead
};

// Blocks that a multiprocessor holds: as many as its registers and threads allow.
int64_t resident_blocks(const SlicedTile& tile) {
  constexpr int64_t kRegisters = 65536, kThreads = 2048, kOthers = 40;
  const int64_t threads = tile.threads[0] * tile.threads[1];
  const int64_t sums = tile.rows * tile.columns / threads;
  const int64_t fetched = tile.slice * (tile.rows + tile.columns) / threads;
  return std::max<int64_t>(
      std::min(kThreads / threads, kRegisters / (threads * (sums + fetched + kOthers))), 1);
}

// What the product takes in `chunks` of its depth, in multiply-adds that the ordinary units of a
// multiprocessor do at their best: rounds of the blocks that it holds, each slice of which takes
// its multiplications, those of the blocks beside it, or a time that passes between any two slices.
double product_time(const SlicedTile& tile, int64_t chunks, const ProductSize& size,
                    const Target& target) {
  // Seconds: a fetch, a store and a barrier, or a barrier alone; a kernel more.
  const double between = size.ahead ? 0.1e-6 : 0.29e-6;
  constexpr double kLaunch = 2.8e-6;
  const double rate = target.flops_per_second / 2 / target.cores;
  const int64_t blocks = size.batches * ceil_divide(size.rows, tile.rows) *
                         ceil_divide(size.columns, tile.columns) * chunks;
  const int64_t each = ceil_divide(blocks, target.cores), held = resident_blocks(tile);
  const auto slices = static_cast<double>(ceil_divide(ceil_divide(size.depth, chunks), tile.slice));
  const double work = static_cast<double>(tile.rows * tile.columns * tile.slice) / tile.rate;
  const auto round = [&](int64_t count) {
    return count == 0
               ? 0
               : (slices + 1) * std::max(static_cast<double>(count) * work, work + between * rate);
  };
  double time = static_cast<double>(each / held) * round(held) + round(each % held);
  if (chunks == 1) return time;
  const double partial = 4.0 * static_cast<double>(size.rows * size.columns * size.batches) *
                         static_cast<double>(2 * chunks + 1);
  return time + (kLaunch + partial / target.memory_bytes_per_second) * rate;
}

// The tile and the chunks of the depth that take least time.
std::pair<const SlicedTile*, int64_t> best_tile(const std::vector<SlicedTile>& tiles,
                                                const ProductSize& size, bool splits,
                                                const Target& target) {
  std::pair<const SlicedTile*, int64_t> best;
  double least = std::numeric_limits<double>::infinity();
  for (const SlicedTile& tile : tiles)
    for (int64_t chunks = 1;
         chunks == 1 || (splits && chunks <= kMostChunks && size.depth / chunks >= kLeastDepth);
         chunks *= 2) {
      const double time = product_time(tile, chunks, size, target);
      if (time < least) std::tie(least, best) = std::make_pair(time, std::make_pair(&tile, chunks));
    }
  return best;
}

// Copies pay where the product is large, and where each factor is there to be copied.
bool slices_pay(const std::vector<Factor>& found, double products, int64_t depth) {
  const auto lanes =
      std::count_if(found.begin(), found.end(), [](const Factor& f) { return f.lanes; });
  const auto all = static_cast<int64_t>(found.size());
  return lanes > 0 && lanes < all && all <= kMostFactors && depth >= kLeastDepth &&
         products >= kLeastProducts;
}

// A product of m x n sums that copies slices; none if it had better not.
std::optional<Schedule> schedule_slices(const TilingRequest& request, const Space& space,
                                        size_t lane, size_t row, int64_t m, int64_t n,
                                        int64_t batches) {
  const size_t rank = space.parallel.size();
  const std::vector<SpaceAxis>& inner = space.passes[0].inner;
  const auto found = factors(request, space, space.parallel[lane], space.parallel[row]);
  const int64_t depth = std::max<int64_t>(planned_extent(inner.back().extent), 1);
  const double products = static_cast<double>(m) * static_cast<double>(n) *
                          static_cast<double>(batches) *
                          static_cast<double>(planned_elements(inner));
  const LoopForm* form = request.forms.find(space.passes[0].reduces[0].node);
  if (!form->monoid || !slices_pay(found, products, depth)) return std::nullopt;
  Schedule schedule{.family = "dot",
                    .block = std::vector<int64_t>(rank, 1),
                    .tile = std::vector<int64_t>(rank, 1)};
  schedule.lane_axis = static_cast<int64_t>(lane);
  const bool matrices = sums_matrix_products(request, space, found);
  const bool ahead = matrices && std::none_of(found.begin(), found.end(),
                                              [](const Factor& factor) { return factor.computed; });
  const auto [tile, chunks] =
      best_tile(matrices ? matrix_tiles() : sliced_tiles(), {m, n, batches, depth, ahead},
                inner.size() == 1 && splittable(request, space), request.target);
  const SlicedTile& best = *tile;
  // Accumulators of eight bytes take the registers of two.
  const auto bytes = static_cast<int64_t>(size_of(compute_type(form->accumulator)));
  const int64_t narrower = std::max<int64_t>(bytes / 4, 1);
  schedule.tile[row] = schedule.block[row] = best.rows / narrower;
  schedule.tile[lane] = schedule.block[lane] = best.columns;
  schedule.threads = best.threads;
  schedule.split = chunks;
  return schedule;
}

}  // namespace

std::optional<std::pair<size_t, size_t>> factor_axes(const TilingRequest& request,
                                                     const Space& space) {
  if (space.passes.empty() || space.passes[0].reduces.size() != 1 || space.passes[0].inner.empty())
    return std::nullopt;
  const bool one_reduction =
      std::all_of(space.passes.begin() + 1, space.passes.end(),
                  [](const Pass& p) { return p.reduces.empty() && p.inner.empty(); });
  if (!one_reduction || !space.passes[0].stores.empty()) return std::nullopt;
  const auto loads = accesses(request, space.passes[0]);
  const size_t rank = space.parallel.size();
  const auto stores = accesses(request, space.passes.back());
  const auto contiguous = [&](const SpaceAxis& axis) {
    double score = 0;
    for (const AccessInfo& load : loads)
      score += load.uses(space.passes[0].inner.back()) && load.stride(axis) == 1;
    for (const AccessInfo& access : stores)
      score += access.store && access.stride(axis) == 1 ? 0.75 : 0;
    return score;
  };
  std::optional<std::pair<size_t, size_t>> best;
  double best_score = -1;
  for (size_t lane = 0; lane < rank; ++lane) {
    for (size_t row = 0; row < rank; ++row) {
      if (lane == row) continue;
      bool by_lane = false, by_row = false, by_both = false, indirect = false;
      for (const AccessInfo& load : loads) {
        const bool l = load.uses(space.parallel[lane]), r = load.uses(space.parallel[row]);
        by_lane = by_lane || l;
        by_row = by_row || r;
        by_both = by_both || (l && r);
        indirect = indirect || (load.indirect && (l || r));
      }
      if (!by_lane || !by_row || by_both || indirect) continue;
      // Ties go to the larger axes, and to rows that lie close to each other.
      const double extents = static_cast<double>(planned_extent(space.parallel[lane].extent)) *
                             static_cast<double>(planned_extent(space.parallel[row].extent));
      const double score = contiguous(space.parallel[lane]) + 1e-3 * std::log2(extents + 1) +
                           1e-6 * static_cast<double>(lane) + 1e-7 * static_cast<double>(row);
      if (score > best_score) {
        best_score = score;
        best = {lane, row};
      }
    }
  }
  return best;
}

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
  if (const auto slices = schedule_slices(request, space, lane, row, m, n, batches)) return slices;
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
  int64_t used = columns.threads * rows.threads;
  if (used < kWarpThreads) columns.threads *= kWarpThreads / used;
  if (schedule.tile[row] > 1)
    schedule.threads = {rows.threads, columns.threads};
  else
    schedule.threads = {columns.threads * rows.threads};
  return schedule;
}

}  // namespace braze
