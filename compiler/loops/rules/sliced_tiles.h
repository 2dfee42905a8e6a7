// sliced_tiles.h — the tiles of products whose factors are on chip in slices (on a GPU's ordinary
// units and on the matrix units of warps), and the time that a product takes with each tile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "ir/target/target.h"

namespace braze {

inline constexpr int64_t kLeastDepth = 32;         ///< shorter products end before slices pay
inline constexpr int64_t kLeastChunk = 64;         ///< of a depth that chunks share
inline constexpr double kLeastProducts = 1 << 23;  ///< smaller ones leave most threads without work
/// A product has at most this many, because an array of registers has at most six axes.
inline constexpr size_t kMostFactors = 4;
inline constexpr int64_t kLargestSums = 128 * 128;  ///< of a tile of sums that threads make

/// What multiplies: the ordinary units of threads, or the matrix units of warps (factors in tf32,
/// of 16 bits, or in f64).
enum class Multiplier : uint8_t { Threads, Tf32Matrices, HalfMatrices, DoubleMatrices };

/// The tile of a block, its threads, and the length of a slice along the summed axis.
struct SlicedTile {
  int64_t rows, lanes, row_threads, lane_threads, slice;
  /// Multiply-adds of a full multiprocessor, as a share of those that its ordinary units can do. Of
  /// 16-bit factors: a share of those that the matrix units of warps can do.
  double rate;
  // Of tiles of threads:
  double alone = 0;    ///< the same of a multiprocessor that has only one block
  double fetched = 0;  ///< the same of a full one if slices go through registers
  int64_t threads() const { return row_threads * lane_threads; }
};

/// How fast the matrix units of warps multiply tf32 for a tile of so many sums, as a share of what
/// they do for the largest tile: smaller ones read their factors more often.
double tf32_tile_speed(int64_t sums);

struct ProductSize {
  int64_t rows, lanes, batches, depth;
  bool ahead;  ///< whether slices can be copied ahead
};

/// The tile and the number of chunks of the depth that take least time. The depth is cut only if
/// the product `splits`.
std::pair<const SlicedTile*, int64_t> best_tile(Multiplier multiplier, const ProductSize& size,
                                                bool splits, const Target& target);

/// The slices of 16-bit factors: how long they are, and how many the block holds. Long slices have
/// fewer barriers between them; they must all be copied, because slices that pass through registers
/// would take too many. The blocks that a multiprocessor runs at the same time must all find room.
struct HalfSlices {
  int64_t length, stages;
};
HalfSlices half_slices(const SlicedTile& tile, int64_t chunks, const ProductSize& size,
                       const Target& target);

}  // namespace braze
