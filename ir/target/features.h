// features.h — features of machines on which rules depend.
#pragma once

#include "ir/target/target.h"

namespace braze {

/// Products with fewer multiply-adds do not fill a machine with asynchronous dots.
inline constexpr double kLeastAsynchronousDot = 1 << 24;

/// Asynchronous matrix units can have so many rows of a product as the columns of one tile, with
/// less waste than in tiles of 128 rows.
inline constexpr int64_t kFewProductRows = 224;
/// Blocks of a cluster share the depth of products with so many rows at most, and there are so many
/// blocks. Larger clusters do not fit into all parts of a GPU, so multiprocessors would be left
/// over.
inline constexpr int64_t kFewClusterRows = 64, kClusterParts = 2;

/// The matrix units of one warp multiply so many rows at once.
inline constexpr int64_t kOneWarpRows = 16;

/// The threads of a GPU keep so many rows of a cascade of dots in registers.
inline constexpr int64_t kFewCascadeRows = 4;

/// The rows of a tensor that asynchronous copies read must be a multiple of this number of bytes.
inline constexpr int64_t kCopiedRowBytes = 16;
/// Bulk copies of rows that begin inside of lines of memory of so many bytes take about twice as
/// long.
inline constexpr int64_t kRowLineBytes = 128;

}  // namespace braze
