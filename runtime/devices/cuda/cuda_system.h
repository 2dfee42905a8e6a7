// cuda_system.h — the GPUs of this machine and the driver that runs them; no CUDA types.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "braze/device.h"
#include "braze/error.h"
#include "ir/target/target.h"

namespace braze {

namespace cuda {
struct Api;
}  // namespace cuda

namespace codes {
inline constexpr Code kUnsupportedGpu{"unsupported-gpu", ErrorKind::Unsupported,
                                      "No code that Braze generates runs on this GPU."};
}  // namespace codes

/// What the driver says about a GPU.
struct GpuFacts {
  std::string name;
  int major = 0, minor = 0;  ///< compute capability
  uint64_t memory_bytes = 0;
  int multiprocessors = 0;
  int64_t block_shared_bytes = 0;  ///< shared memory that a block can have
  int64_t shared_bytes = 0;        ///< of a multiprocessor
  int64_t l2_bytes = 0;            ///< cache shared by all multiprocessors
  double clock_hz = 0;
  double memory_bytes_per_second = 0;  ///< the speed of its pins; 0 if the driver does not say
};

/// "9.0": the compute capability.
std::string capability_text(const GpuFacts& gpu);

/// The machine to generate code for, with this GPU's sizes and speeds; none if no row of the table
/// of targets runs on it.
std::optional<Target> gpu_target(const GpuFacts& gpu);

/// The reason why `gpu` cannot run code for `target`; empty if it can.
std::string why_not(const GpuFacts& gpu, const Target& target);

/// The first digit of the compute capability that machine code for `target` needs.
int capability_major(const Target& target);

/// The GPUs and the driver. Immutable.
class CudaSystem {
 public:
  /// The object of this process, with the driver that BRAZE_CUDA_DRIVER names, or else that of the
  /// system. It is opened at first use and never closed.
  static const CudaSystem& get();
  /// Opens the driver called `library`.
  explicit CudaSystem(const std::string& library);
  ~CudaSystem();
  CudaSystem(const CudaSystem&) = delete;
  CudaSystem& operator=(const CudaSystem&) = delete;

  /// Null if there is no GPU that can be used.
  const cuda::Api* api() const { return api_.get(); }
  /// One sentence that says why there is no GPU; empty if there is one.
  const std::string& missing() const { return missing_; }
  /// The CUDA version that the driver supports, such as "12.4"; empty if there is no driver.
  const std::string& driver_version() const { return driver_version_; }
  std::span<const GpuFacts> gpus() const { return gpus_; }
  /// Whether a GPU can access the memory of another one directly, and not through the host.
  bool reaches(int from, int to) const;
  /// Whether the link between two GPUs carries atomic operations, as NVLink does and PCIe does not.
  bool has_atomic_link(int from, int to) const;
  /// The first GPU for which code can be generated, if there is one.
  std::optional<int> first_usable() const { return first_usable_; }
  /// The value of fork_count() when the driver was opened. The driver does not work in children of
  /// that process.
  int forks() const { return forks_; }

 private:
  std::unique_ptr<const cuda::Api> api_;
  std::string missing_, driver_version_;
  std::vector<GpuFacts> gpus_;
  std::optional<int> first_usable_;
  const int forks_;
};

}  // namespace braze
