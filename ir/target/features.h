// features.h — features of machines on which rules depend.
#pragma once

#include "ir/target/target.h"

namespace braze {

/// Asynchronous matrix instructions that a pipelined tile program feeds.
inline bool has_asynchronous_dots(const Target& target) { return target.name == "sm_90a"; }

/// The registers of a thread with which two of the largest blocks of sums share a multiprocessor; 0
/// where the assembler would spill.
inline int64_t shared_block_registers(const Target& target) {
  return target.name == "sm_90a" ? 128 : 0;
}

/// Products of fewer multiply-adds do not fill such a machine.
inline constexpr double kLeastAsynchronousDot = 1 << 24;

/// The rows of a tensor that asynchronous copies read are a multiple of so many bytes.
inline constexpr int64_t kCopiedRowBytes = 16;

}  // namespace braze
