// features.h — features of machines on which rules depend.
#pragma once

#include "ir/target/target.h"

namespace braze {

/// Products with fewer multiply-adds do not fill a machine with asynchronous dots.
inline constexpr double kLeastAsynchronousDot = 1 << 24;

/// The blocks of a cluster can keep the sums of so many rows of a product for each other.
inline constexpr int64_t kFewProductRows = 64;

/// The threads of a GPU keep so many rows of a cascade of dots in registers.
inline constexpr int64_t kFewCascadeRows = 4;

/// The rows of a tensor that asynchronous copies read must be a multiple of this number of bytes.
inline constexpr int64_t kCopiedRowBytes = 16;

}  // namespace braze
