#include "ir/target/occupancy.h"

#include <algorithm>

namespace braze {

namespace {

constexpr int64_t kWarpThreads = 32;
constexpr int64_t kRegisterUnit = 256;  // warps get registers in pieces of this size
constexpr int64_t kThreadRegisterUnit = 8;
constexpr int64_t kParts = 4;  // of a multiprocessor, each with its own registers
constexpr int64_t kBlocks = 32;
constexpr int64_t kReservedBytes = 1024;  // of shared memory, in each block

int64_t rounded_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace

int64_t launch_registers(int64_t threads) {
  return std::min(kMultiprocessorRegisters / threads / kThreadRegisterUnit * kThreadRegisterUnit,
                  kMostThreadRegisters);
}

int64_t resident_blocks(const Target& target, const BlockNeeds& block) {
  const int64_t warps = (block.threads + kWarpThreads - 1) / kWarpThreads;
  if (warps == 0) return 0;
  const int64_t warp_registers =
      rounded_up(std::max<int64_t>(block.registers, 1) * kWarpThreads, kRegisterUnit);
  return std::min({kBlocks, kMultiprocessorThreads / kWarpThreads / warps,
                   kMultiprocessorRegisters / kParts / warp_registers * kParts / warps,
                   (target.l1_bytes + kReservedBytes) / (block.shared_bytes + kReservedBytes)});
}

}  // namespace braze
