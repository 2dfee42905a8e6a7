// cuda_driver.h — the devices "cuda:0", "cuda:1" ...: NVIDIA GPUs through the CUDA driver.
//
// Without further streams, everything that writes a GPU's memory is in its main stream
// (CudaContext::work), in the order in which the host submits it: launches, fills, and copies from
// the host. A buffer is freed when all its uses are in the stream that owns it. The next use of its
// memory comes later in that stream, so the allocator does not have to wait. If another stream has
// used the buffer, the owning stream waits for it first (Array::State). Copies to the host have
// their own stream, and keep their source until they are complete.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "runtime/devices/cuda/cuda_context.h"
#include "runtime/devices/cuda/cuda_system.h"
#include "runtime/devices/cuda/releaser.h"
#include "runtime/devices/cuda/staging.h"
#include "runtime/devices/cuda/strided_copy.h"

namespace braze {

/// A moment of the GPU's clock whose time on the host's clock is known.
class ClockAnchor;

/// Runs artifacts of the formats "ptx" and "cubin".
class CudaDriver : public DeviceDriver {
 public:
  /// `device` is one of system.gpus(), and `system` lives as long as the process.
  CudaDriver(Device device, const CudaSystem& system);

  /// Throws Unsupported if no row of the table of targets fits this GPU.
  const Target& target() override;
  std::optional<int> suitability(const Target& target, std::string_view format) const override;
  std::unique_ptr<LoadedProgram> load(std::shared_ptr<const Program> program) override;

  bool has_host_memory() const override { return false; }
  CustomMemory custom_memory() const override { return CustomMemory::Cuda; }
  void synchronize() override;
  void zero(DeviceStream* stream, std::byte* data, size_t size) override;
  void copy(DeviceStream* stream, std::byte* to, const std::byte* from, size_t size) override;
  void copy_strided(DeviceStream* stream, std::byte* to, const std::byte* from,
                    const StridedCopy& copy) override;
  StreamRef make_stream(std::optional<void*> foreign) override;
  /// A further stream, whose blocks come before waiting blocks of other streams.
  StreamRef make_urgent_stream();
  void* main_stream() const override { return context_->work(); }
  const CudaContext& context() const { return *context_; }
  std::shared_ptr<Fence> fence(DeviceStream* stream) override;
  void wait_for(DeviceStream* stream, Fence& fence) override;
  void wait_for_native(DeviceStream* stream, void* event) override;
  void release_after(DeviceStream* stream, std::vector<std::shared_ptr<Fence>> fences,
                     std::shared_ptr<const void> owner) noexcept override;
  std::byte* allocate_pinned(size_t size) override;
  void free_pinned(std::byte* data, size_t size) noexcept override;
  std::shared_ptr<Fence> copy_pinned(DeviceStream* stream, std::byte* to, const std::byte* from,
                                     size_t size, bool to_host, Fence* after) override;
  bool owns(const void* data) const override;
  std::shared_ptr<Stopwatch> start_stopwatch(DeviceStream* stream) override;
  void copy_from_host(DeviceStream* stream, std::byte* to,
                      std::span<const std::byte> from) override;
  void copy_to_host(std::span<std::byte> to, const std::byte* from, Fence* after) override;
  void copy_from_device(std::byte* to, DeviceDriver& source, const std::byte* from, size_t size,
                        Fence* after) override;

 private:
  CudaDriver(Device device, const CudaSystem& system, std::shared_ptr<CudaContext> context);

  cuda::CUstream native(const DeviceStream* stream) const { return context_->native(stream); }
  std::shared_ptr<Stopwatch> start_stopwatch_in(cuda::CUstream stream);
  std::shared_ptr<const ClockAnchor> clock_anchor();

  const std::shared_ptr<CudaContext> context_;
  const GpuFacts& gpu_;
  const std::optional<Target> target_;
  Uploads uploads_;
  Downloads downloads_;
  StridedCopies strided_copies_;
  Releaser releaser_;

  std::mutex foreign_mutex_;
  std::map<void*, std::weak_ptr<DeviceStream>> foreign_;  // streams of the host program

  std::mutex anchor_mutex_;
  std::shared_ptr<const ClockAnchor> anchor_;
  // While a timeline is recorded, copies to and from the host take turns, so that each of them can
  // be measured.
  std::mutex copies_in_, copies_out_;
};

}  // namespace braze
