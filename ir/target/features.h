// features.h — features of machines on which rules depend.
#pragma once

#include "ir/target/target.h"

namespace braze {

/// Whether the target has asynchronous matrix instructions, whose factors a pipelined tile program
/// copies.
inline bool has_asynchronous_dots(const Target& target) { return target.name == "sm_90a"; }

/// The number of registers of a thread with which two blocks of products with the largest tile
/// share a multiprocessor; 0 where the assembler would then spill.
inline int64_t shared_block_registers(const Target& target) {
  return target.name == "sm_90a" ? 128 : 0;
}

/// Products with fewer multiply-adds do not fill a machine with asynchronous dots.
inline constexpr double kLeastAsynchronousDot = 1 << 24;

/// The rows of a tensor that asynchronous copies read must be a multiple of this number of bytes.
inline constexpr int64_t kCopiedRowBytes = 16;

}  // namespace braze
