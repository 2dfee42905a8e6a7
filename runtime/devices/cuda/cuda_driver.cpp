#include "runtime/devices/cuda/cuda_driver.h"

#include "ir/support/text.h"
#include "runtime/devices/cuda/cuda_kernels.h"

namespace braze {

namespace {

cuda::CUdeviceptr address(const std::byte* data) { return reinterpret_cast<uintptr_t>(data); }

/// Device memory, for the caching allocator. Not the driver's own pools (cuMemAllocAsync): the
/// cache above reuses memory in the order of the queue already, and a second cache below it would
/// hide what is free.
class CudaMemory : public MemorySource {
 public:
  explicit CudaMemory(std::shared_ptr<CudaContext> context)
      : shared_(std::move(context)), context_(*shared_) {}

  std::byte* allocate(size_t size) override {
    const CudaContext::Scope scope(context_);
    cuda::CUdeviceptr memory = 0;
    const cuda::CUresult result = context_.api().mem_alloc(&memory, size);
    if (result == cuda::CUDA_ERROR_OUT_OF_MEMORY) return nullptr;
    context_.check(result, "allocating memory");
    return reinterpret_cast<std::byte*>(static_cast<uintptr_t>(memory));
  }

  void free(std::byte* data, size_t) override {
    const CudaContext::Scope scope(context_);
    // Unlike reuse, this is not in the order of the queue: what uses the memory must be complete.
    context_.api().stream_synchronize(context_.work());
    context_.api().mem_free(address(data));
  }

 private:
  const std::shared_ptr<CudaContext> shared_;
  CudaContext& context_;
};

class CudaStopwatch : public Stopwatch {
 public:
  explicit CudaStopwatch(CudaContext& context) : context_(context) {
    for (cuda::CUevent& event : events_) {
      context_.check(context_.api().event_create(&event, cuda::CU_EVENT_DEFAULT),
                     "making an event");
    }
    context_.check(context_.api().event_record(events_[0], context_.work()), "recording an event");
  }
  ~CudaStopwatch() override {
    const CudaContext::Scope scope(context_);
    for (const cuda::CUevent event : events_) {
      if (event) context_.api().event_destroy(event);
    }
  }
  CudaStopwatch(const CudaStopwatch&) = delete;
  CudaStopwatch& operator=(const CudaStopwatch&) = delete;

  void stop() override {
    const CudaContext::Scope scope(context_);
    context_.api().event_record(events_[1], context_.work());
  }

  double seconds() override {
    const CudaContext::Scope scope(context_);
    float milliseconds = 0;
    if (context_.api().event_synchronize(events_[1]) != cuda::CUDA_SUCCESS ||
        context_.api().event_elapsed_time(&milliseconds, events_[0], events_[1]) !=
            cuda::CUDA_SUCCESS) {
      return 0;
    }
    return 1e-3 * static_cast<double>(milliseconds);
  }

 private:
  CudaContext& context_;
  cuda::CUevent events_[2] = {};
};

}  // namespace

CudaDriver::CudaDriver(Device device, const CudaSystem& system)
    : CudaDriver(device, system,
                 std::make_shared<CudaContext>(*system.api(), device.index(), device.name())) {}

CudaDriver::CudaDriver(Device device, const CudaSystem& system,
                       std::shared_ptr<CudaContext> context)
    : DeviceDriver(device, std::make_unique<CudaMemory>(context), Stream::Mode::Immediate),
      context_(std::move(context)),
      gpu_(system.gpus()[static_cast<size_t>(device.index())]),
      target_(gpu_target(gpu_)),
      uploads_(*context_),
      downloads_(*context_) {}

const Target& CudaDriver::target() {
  if (target_) return *target_;
  fail(codes::kUnsupportedGpu,
       fmt::format("{}, {}, has the compute capability {}; code is generated for 8.0 and later",
                   name(), gpu_.name, capability_text(gpu_)));
}

std::optional<int> CudaDriver::suitability(const Target& target, std::string_view format) const {
  const bool is_cubin = format == "cubin";
  if ((!is_cubin && format != "ptx") || !why_not(gpu_, target).empty()) return std::nullopt;
  // Machine code runs on GPUs of its own generation only, PTX on later ones too.
  const bool is_own = target_ && target.name == target_->name;
  if (is_cubin && gpu_.major != capability_major(target)) return std::nullopt;
  return 2 * is_own + is_cubin;
}

std::unique_ptr<LoadedProgram> CudaDriver::load(std::shared_ptr<const Program> program) {
  for (const Artifact& artifact : program->artifacts) {
    if (artifact.format != "ptx" && artifact.format != "cubin") {
      fail_unsupported_format(*this, artifact, "\"ptx\" or \"cubin\"");
    }
  }
  const Target& target = program->target;
  if (const std::string reason = why_not(gpu_, target); !reason.empty()) {
    fail(codes::kUnsupportedProgram,
         fmt::format("device {} does not run program @{}, which is for {}: {}", name(),
                     program->name, target.simulated ? "sim:" + target.name : target.name, reason));
  }
  return load_cuda_kernels(*context_, gpu_, std::move(program));
}

void CudaDriver::synchronize() {
  stream().drain();
  context_->synchronize();
  stream().synchronize();
}

void CudaDriver::zero(std::byte* data, size_t size) {
  if (size == 0) return;
  const CudaContext::Scope scope(*context_);
  context_->check(context_->api().memset_d8_async(address(data), 0, size, context_->issue()),
                  "filling memory");
}

void CudaDriver::copy(std::byte* to, const std::byte* from, size_t size) {
  if (size == 0) return;
  const CudaContext::Scope scope(*context_);
  context_->check(
      context_->api().memcpy_d_to_d_async(address(to), address(from), size, context_->issue()),
      "a copy on the device");
}

std::shared_ptr<Fence> CudaDriver::fence() {
  const CudaContext::Scope scope(*context_);
  return context_->fence(context_->work());
}

std::shared_ptr<Stopwatch> CudaDriver::start_stopwatch() {
  const CudaContext::Scope scope(*context_);
  return std::make_shared<CudaStopwatch>(*context_);
}

void CudaDriver::copy_from_host(std::byte* to, std::span<const std::byte> from) {
  if (from.empty()) return;
  const CudaContext::Scope scope(*context_);
  uploads_.copy(to, from);
}

void CudaDriver::copy_to_host(std::span<std::byte> to, const std::byte* from, Fence* after) {
  if (to.empty()) return;
  const CudaContext::Scope scope(*context_);
  const auto now = after ? nullptr : context_->fence(context_->work());
  downloads_.copy(to, from, now ? *now : static_cast<CudaFence&>(*after));
}

void CudaDriver::copy_from_device(std::byte* to, DeviceDriver& source, const std::byte* from,
                                  size_t size, Fence* after) {
  auto* const peer = dynamic_cast<CudaDriver*>(&source);
  if (!peer) return DeviceDriver::copy_from_device(to, source, from, size, after);
  CudaContext& there = *peer->context_;
  const cuda::Api& api = context_->api();
  // What was in the memory of `to` before may be in use.
  const std::shared_ptr<Fence> free = fence();
  const std::shared_ptr<Fence> made = after ? nullptr : peer->fence();
  const auto event = [](Fence& fence) { return static_cast<CudaFence&>(fence).event(); };
  std::shared_ptr<CudaFence> copied;
  {
    const CudaContext::Scope scope(there);
    there.enable_peer(*context_);
    there.check(api.stream_wait_event(there.reads(), event(after ? *after : *made), 0),
                "ordering a copy");
    there.check(api.stream_wait_event(there.reads(), event(*free), 0), "ordering a copy");
    there.check(api.memcpy_peer_async(address(to), context_->handle(), address(from),
                                      there.handle(), size, there.reads()),
                "a copy to another device");
    copied = there.fence(there.reads());
    // The source may be freed from now on, and its memory written by what comes later.
    there.check(api.stream_wait_event(there.work(), copied->event(), 0), "ordering a copy");
  }
  const CudaContext::Scope scope(*context_);
  context_->check(api.stream_wait_event(context_->work(), copied->event(), 0), "ordering a copy");
}

}  // namespace braze
