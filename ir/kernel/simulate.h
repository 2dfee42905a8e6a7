// simulate.h — the simulator: runs kernels for a GPU on the host and checks their promises.
//
// Clusters run one after the other. The warps of a cluster take turns, and each runs until it has
// to wait. Values are computed for all threads of a warp at once, with the machine semantics that
// interpreters and generated code share, so results have the GPU's bits (sums of matrix
// instructions are within their bound). Copies take place when they are issued. Clocks (ordering.h)
// find accesses that come too early, or that are in the right order only by accident.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "braze/error.h"
#include "ir/code/code.h"
#include "ir/code/interpret.h"

namespace braze {

namespace codes {
inline constexpr Code kThreadRace{
    "thread-race", ErrorKind::Device,
    "Two accesses of one element, of which at least one is a store, are not ordered."};
inline constexpr Code kNoProxyFence{"no-proxy-fence", ErrorKind::Device,
                                    "An asynchronous copy or wgmma reads what a thread stored "
                                    "without a fence.proxy.async between."};
inline constexpr Code kDivergence{
    "divergence", ErrorKind::Device,
    "Some threads of a warp or group do not execute an instruction that all must execute."};
inline constexpr Code kBarrierMisuse{"barrier-misuse", ErrorKind::Device,
                                     "A named barrier is used with different counts."};
inline constexpr Code kMbarrierMisuse{"mbarrier-misuse", ErrorKind::Device,
                                      "An mbarrier is used in a way that its state forbids."};
inline constexpr Code kMbarrierBytes{
    "mbarrier-bytes", ErrorKind::Device,
    "The number of bytes that an mbarrier expects differs from the number that it gets."};
inline constexpr Code kUndefinedValue{"undefined-value", ErrorKind::Device,
                                      "A value that is read is undefined or still in flight."};
inline constexpr Code kPendingCopies{"pending-copies", ErrorKind::Device,
                                     "A block ends while something asynchronous uses its memory."};
inline constexpr Code kDeadlock{"deadlock", ErrorKind::Device,
                                "All warps wait for events that can no longer happen."};
inline constexpr Code kEndless{"endless", ErrorKind::Device,
                               "A warp runs more statements than the simulator allows."};
}  // namespace codes

/// A kernel for a GPU compiled for simulation.
class Simulator {
 public:
  /// `kernel` must be sound (see verify).
  explicit Simulator(const KernelCode& kernel);
  ~Simulator();

  /// The same as CodeInterpreter::run.
  std::vector<Diagnostic> run(std::span<const std::span<std::byte>> memories,
                              std::span<const int64_t> scalars);
  /// The number of statements that were run so far. Each counts once for every thread that took
  /// part.
  uint64_t thread_statements() const;
  /// The lines of the kernel's text that some thread has run so far.
  std::set<uint32_t> lines_run() const;

 private:
  friend struct InstructionTable;
  class Engine;
  const std::unique_ptr<Engine> engine_;
};

/// Whether the kernel is for a GPU, so that it needs the simulator.
bool is_gpu_kernel(const KernelCode& code);

/// Compiles and runs a kernel of either kind.
std::vector<Diagnostic> run_kernel(const KernelCode& kernel,
                                   std::span<const std::span<std::byte>> memories,
                                   std::span<const int64_t> scalars);

}  // namespace braze
