// features.h — features of machines on which rules depend.
#pragma once

#include "ir/target/target.h"

namespace braze {

/// Whether the target has asynchronous matrix instructions, whose factors a pipelined tile program
/// copies.
inline bool has_asynchronous_dots(const Target& target) { return target.name == "sm_90a"; }

/// How many registers a thread may have so that two blocks of a product share a multiprocessor,
/// even with the largest tile. 0 if the assembler would spill with so few.
inline int64_t shared_block_registers(const Target& target) {
  return target.name == "sm_90a" ? 128 : 0;
}

/// Products with fewer multiply-adds do not fill a machine with asynchronous dots.
inline constexpr double kLeastAsynchronousDot = 1 << 24;

/// The rows of a tensor that asynchronous copies read must be a multiple of this number of bytes.
inline constexpr int64_t kCopiedRowBytes = 16;

}  // namespace braze
