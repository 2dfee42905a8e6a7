// sliced_tiles.h — the tiles of products on a GPU's ordinary units and on the matrix units of
// warps, whose factors have slices on chip, and the time that a product takes with each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "ir/target/target.h"

namespace braze {

inline constexpr int64_t kLeastDepth = 64;         ///< shorter products are over before slices pay
inline constexpr double kLeastProducts = 1 << 23;  ///< smaller ones leave most threads without work
inline constexpr size_t kMostFactors = 4;          ///< an array of registers has six axes at most

/// A block's tile, its threads, and the steps of a slice.
struct SlicedTile {
  int64_t rows, lanes, row_threads, lane_threads, slice;
  double rate;  ///< multiply-adds of a full multiprocessor, beside those of its ordinary units
  int64_t threads() const { return row_threads * lane_threads; }
};

struct ProductSize {
  int64_t rows, lanes, batches, depth;
  bool ahead;  ///< slices are copied ahead
};

/// The tile, of those for matrix units or for ordinary ones, and the chunks of the depth that take
/// least time. There is one chunk unless the product `splits`.
std::pair<const SlicedTile*, int64_t> best_tile(bool matrices, const ProductSize& size, bool splits,
                                                const Target& target);

}  // namespace braze
