// occupancy.h — how many blocks of a kernel a multiprocessor holds at the same time, and how many
// registers their threads have.
#pragma once

#include <cstdint>

#include "ir/target/target.h"

namespace braze {

/// The resources of a multiprocessor that a block uses.
struct BlockNeeds {
  int64_t threads = 0;       ///< 1 to 1024
  int64_t registers = 0;     ///< of a thread, as the assembler reports them
  int64_t shared_bytes = 0;  ///< static and dynamic
};

/// The limits are those of "Technical Specifications per Compute Capability" in NVIDIA's CUDA C++
/// Programming Guide. They are the same for 8.0 and 9.0, except for shared memory.
inline constexpr int64_t kMultiprocessorThreads = 2048;
inline constexpr int64_t kMultiprocessorRegisters = 65536;
inline constexpr int64_t kMostThreadRegisters = 255;

/// The registers that each thread of a block of `threads` has at its start if its code sets no
/// bound. At least one block fits.
int64_t launch_registers(int64_t threads);

/// The number of blocks; 0 if not even one fits.
int64_t resident_blocks(const Target& target, const BlockNeeds& block);

}  // namespace braze
