#include "compiler/loops/rules/sliced_tiles.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <span>
#include <tuple>

#include "compiler/loops/cost.h"
#include "compiler/loops/rules/layouts.h"
#include "ir/target/occupancy.h"

namespace braze {

namespace {

constexpr int64_t kMostChunks = 128;
constexpr SlicedTile kMatrixTiles[] = {{128, 128, 16, 8, 16, 2.4},
                                       {128, 64, 16, 8, 16, 1.8},
                                       {64, 64, 16, 8, 16, 1.5},
                                       {32, 32, 16, 4, 16, 0.8}};
// Warps multiply 64 x 64 sums where they can, so that shared memory, which gives 128 bytes in a
// cycle, keeps up with the matrix units. The largest tiles need least of the cache that all share;
// long rows of results took 318 us, and short ones 331 us, of 4096 x 4096 x 4096 on an H200.
constexpr SlicedTile kHalfTiles[] = {{128, 256, 16, 16, 32, 0.71}, {256, 128, 32, 8, 32, 0.68},
                                     {128, 128, 16, 8, 32, 0.62},  {128, 64, 16, 8, 32, 0.48},
                                     {64, 64, 16, 8, 32, 0.4},     {32, 32, 16, 4, 32, 0.2}};
// Matrix units multiply f64 as fast as ordinary units multiply f32; 4096 x 4096 x 4096 took 2.51 ms
// on an H200. Sums take two registers each.
constexpr SlicedTile kDoubleTiles[] = {{128, 64, 16, 8, 8, 0.82},
                                       {64, 64, 16, 8, 8, 0.75},
                                       {64, 32, 16, 4, 8, 0.6},
                                       {32, 32, 16, 4, 8, 0.4}};
// Measured on an H200. A thread of the largest tile makes 16 x 8 sums, so that it reads few factors
// for each; two blocks find room.
constexpr SlicedTile kTiles[] = {{128, 128, 8, 16, 8, 0.72, 0.42, 0.68},
                                 {64, 64, 8, 16, 16, 0.64, 0.5, 0.55},
                                 {64, 64, 16, 16, 16, 0.62, 0.55, 0.59},
                                 {32, 32, 8, 8, 16, 0.6, 0.21, 0.45}};

// The number of blocks for which a multiprocessor has registers and threads.
int64_t resident_blocks(Multiplier multiplier, const SlicedTile& tile) {
  constexpr int64_t kOthers = 40;  // registers of a thread for all else
  const int64_t each = multiplier == Multiplier::DoubleMatrices ? 2 : 1;
  const int64_t sums = each * tile.rows * tile.lanes / tile.threads();
  const int64_t fetched = each * tile.slice * (tile.rows + tile.lanes) / tile.threads();
  return std::max<int64_t>(
      std::min(kMultiprocessorThreads / tile.threads(),
               kMultiprocessorRegisters / (tile.threads() * (sums + fetched + kOthers))),
      1);
}

// The number of blocks that a multiprocessor gets.
int64_t blocks_each(const SlicedTile& tile, int64_t chunks, const ProductSize& size,
                    const Target& target) {
  return ceil_divide(size.batches * ceil_divide(size.rows, tile.rows) *
                         ceil_divide(size.lanes, tile.lanes) * chunks,
                     target.cores);
}

// The time of the product with its depth in `chunks`. The unit is the time of one multiply-add on
// the ordinary units of a multiprocessor at their best. Blocks run in rounds of as many as the
// machine holds. A slice of a round takes the time of all multiplications, or that of a block alone
// and the pause between two slices, whichever is longer.
double product_time(Multiplier multiplier, const SlicedTile& tile, int64_t chunks,
                    const ProductSize& size, const Target& target) {
  // Seconds: of a pause between slices (a barrier, or a fetch, a store and a barrier), and of one
  // more phase. Threads that copy slices have no pause that could be measured.
  const bool threads = multiplier == Multiplier::Threads;
  const double between = !size.ahead ? 0.29e-6 : threads ? 0 : 0.1e-6;
  constexpr double kPhase = 2.8e-6;
  const double rate = target.flops_per_second / 2 / target.cores;
  const int64_t each = blocks_each(tile, chunks, size, target),
                held = resident_blocks(multiplier, tile);
  const auto slices = static_cast<double>(ceil_divide(ceil_divide(size.depth, chunks), tile.slice));
  const double rate_of_tile = threads && !size.ahead ? tile.fetched : tile.rate;
  const double speed = multiplier == Multiplier::HalfMatrices ? warp_matrix_speed(target) : 1;
  const double work =
      static_cast<double>(tile.rows * tile.lanes * tile.slice) / (rate_of_tile * speed);
  const double alone = tile.alone > 0 ? work * tile.rate / tile.alone : work;
  const auto round = [&](int64_t count) {
    return count == 0
               ? 0
               : (slices + 1) * std::max(static_cast<double>(count) * work, alone + between * rate);
  };
  const double time = static_cast<double>(each / held) * round(held) + round(each % held);
  if (chunks == 1) return time;
  const double partial = 4.0 * static_cast<double>(size.rows * size.lanes * size.batches) *
                         static_cast<double>(2 * chunks + 1);
  return time + (kPhase + partial / target.memory_bytes_per_second) * rate;
}

}  // namespace

double tf32_tile_speed(int64_t sums) {
  for (const SlicedTile& tile : kMatrixTiles)
    if (tile.rows * tile.lanes <= sums) return tile.rate / kMatrixTiles[0].rate;
  return std::end(kMatrixTiles)[-1].rate / kMatrixTiles[0].rate;
}

std::pair<const SlicedTile*, int64_t> best_tile(Multiplier multiplier, const ProductSize& size,
                                                bool splits, const Target& target) {
  using Tiles = std::span<const SlicedTile>;
  const Tiles tiles = multiplier == Multiplier::HalfMatrices     ? Tiles(kHalfTiles)
                      : multiplier == Multiplier::Tf32Matrices   ? Tiles(kMatrixTiles)
                      : multiplier == Multiplier::DoubleMatrices ? Tiles(kDoubleTiles)
                                                                 : Tiles(kTiles);
  std::pair<const SlicedTile*, int64_t> best;
  double least = std::numeric_limits<double>::infinity();
  for (const SlicedTile& tile : tiles)
    for (int64_t chunks = 1;
         chunks == 1 || (splits && chunks <= kMostChunks && size.depth / chunks >= kLeastChunk);
         chunks *= 2) {
      const double time = product_time(multiplier, tile, chunks, size, target);
      if (time < least) std::tie(least, best) = std::make_pair(time, std::make_pair(&tile, chunks));
    }
  return best;
}

HalfSlices half_slices(const SlicedTile& tile, int64_t chunks, const ProductSize& size,
                       const Target& target) {
  constexpr int64_t kBytes = 2, kPadding = 8, kMostStages = 4, kFewStages = 3;
  constexpr int64_t kReserved = 1024;  // bytes that the system takes for each block
  const int64_t blocks = std::min(resident_blocks(Multiplier::HalfMatrices, tile),
                                  blocks_each(tile, chunks, size, target));
  const int64_t room = target.l1_bytes / std::max<int64_t>(blocks, 1) - kReserved;
  const auto stages = [&](int64_t length) {
    // Rows run along the depth or across it. The longer of the two forms counts.
    const int64_t along = (tile.rows + tile.lanes) * (length + kPadding),
                  across = (tile.rows + tile.lanes + 2 * kPadding) * length;
    return std::min(room / (std::max(along, across) * kBytes), kMostStages);
  };
  const int64_t depth = ceil_divide(size.depth, chunks);
  // Slices are turns of a loop of matrices. One that is the whole depth would be no turn, and half
  // of it may be a single matrix, so it is twice as long, and zero beyond the depth.
  const bool is_whole = size.depth == tile.slice;
  const bool is_long =
      is_whole || (size.ahead && depth > 2 * tile.slice && stages(2 * tile.slice) >= kFewStages);
  const int64_t length = is_long ? 2 * tile.slice : tile.slice;
  // More slots than turns would be filled for nothing.
  return {length, std::max<int64_t>(std::min(stages(length), ceil_divide(depth, length)), 2)};
}

}  // namespace braze
