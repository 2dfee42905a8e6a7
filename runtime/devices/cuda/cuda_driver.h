// cuda_driver.h — the devices "cuda:0", "cuda:1" ...: NVIDIA GPUs through the CUDA driver.
//
// Everything that writes a GPU's memory stands in one queue (CudaContext::work), in the order in
// which the host submits it: launches, fills, copies in. A buffer is freed after all its uses are
// in that queue, so whoever gets its memory next comes behind them, and the allocator needs to wait
// for nothing. Copies out have a queue of their own, and hold their source until they are complete.
#pragma once

#include <memory>
#include <mutex>

#include "runtime/devices/cuda/cuda_context.h"
#include "runtime/devices/cuda/cuda_system.h"
#include "runtime/devices/cuda/staging.h"

namespace braze {

/// A moment of the GPU's clock whose time on the host's clock is known.
class ClockAnchor;

/// Runs artifacts of the formats "ptx" and "cubin".
class CudaDriver : public DeviceDriver {
 public:
  /// `device` is one of system.gpus(), and `system` lives as long as the process.
  CudaDriver(Device device, const CudaSystem& system);

  /// Unsupported if no row of the table of targets is for this GPU.
  const Target& target() override;
  std::optional<int> suitability(const Target& target, std::string_view format) const override;
  std::unique_ptr<LoadedProgram> load(std::shared_ptr<const Program> program) override;

  bool has_host_memory() const override { return false; }
  void synchronize() override;
  void zero(std::byte* data, size_t size) override;
  void copy(std::byte* to, const std::byte* from, size_t size) override;
  std::shared_ptr<Fence> fence() override;
  std::shared_ptr<Stopwatch> start_stopwatch() override;
  void copy_from_host(std::byte* to, std::span<const std::byte> from) override;
  void copy_to_host(std::span<std::byte> to, const std::byte* from, Fence* after) override;
  void copy_from_device(std::byte* to, DeviceDriver& source, const std::byte* from, size_t size,
                        Fence* after) override;

 private:
  CudaDriver(Device device, const CudaSystem& system, std::shared_ptr<CudaContext> context);

  std::shared_ptr<Stopwatch> start_stopwatch(cuda::CUstream stream);
  std::shared_ptr<const ClockAnchor> clock_anchor();

  const std::shared_ptr<CudaContext> context_;
  const GpuFacts& gpu_;
  const std::optional<Target> target_;
  Uploads uploads_;
  Downloads downloads_;

  std::mutex anchor_mutex_;
  std::shared_ptr<const ClockAnchor> anchor_;
  // Under a timeline copies to and from the host take turns, so that each has its own time.
  std::mutex copies_in_, copies_out_;
};

}  // namespace braze
