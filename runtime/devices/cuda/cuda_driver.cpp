#include "runtime/devices/cuda/cuda_driver.h"

#include "ir/support/fork.h"
#include "ir/support/text.h"
#include "runtime/devices/cuda/call_record.h"
#include "runtime/devices/cuda/cuda_kernels.h"
#include "runtime/profile/device_trace.h"

namespace braze {

namespace {

cuda::CUdeviceptr address(const std::byte* data) { return reinterpret_cast<uintptr_t>(data); }

/// Device memory for the caching allocator. The driver's own pools (cuMemAllocAsync) are not used:
/// the cache above them already reuses memory in the order of the queue, and a second cache below
/// it would hide what is free.
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

  void free(std::byte* data, size_t) noexcept override {
    const CudaContext::Scope scope(context_);
    // Unlike reuse, this does not follow the order of a stream, so everything that uses the memory
    // must be complete.
    context_.finish_work();
    context_.api().mem_free(address(data));
  }

 private:
  const std::shared_ptr<CudaContext> shared_;
  CudaContext& context_;
};

/// An event with a time. It must be made in a Scope.
class TimedEvent {
 public:
  explicit TimedEvent(CudaContext& context) : context_(context) {
    context_.check(context_.api().event_create(&event_, cuda::CU_EVENT_DEFAULT), "making an event");
  }
  ~TimedEvent() {
    if (is_forked()) return;
    const CudaContext::Scope scope(context_);
    context_.api().event_destroy(event_);
  }
  TimedEvent(const TimedEvent&) = delete;
  TimedEvent& operator=(const TimedEvent&) = delete;

  cuda::CUevent get() const { return event_; }
  cuda::CUresult record(cuda::CUstream stream) const {
    return context_.api().event_record(event_, stream);
  }
  cuda::CUresult wait() const { return context_.api().event_synchronize(event_); }
  /// The nanoseconds from another event to this one. Both must be complete; 0 if one failed.
  double since(const TimedEvent& other) const {
    float milliseconds = 0;
    const auto result = context_.api().event_elapsed_time(&milliseconds, other.event_, event_);
    return result == cuda::CUDA_SUCCESS ? 1e6 * static_cast<double>(milliseconds) : 0;
  }

 private:
  CudaContext& context_;
  cuda::CUevent event_ = nullptr;
};

}  // namespace

// A moment whose time is known on the GPU and on the host. The GPU reports only the distance
// between two events, as a float of milliseconds, and its clock drifts from that of the host. An
// anchor is therefore valid for one second.
class ClockAnchor {
 public:
  static constexpr int64_t kLifetime = 1'000'000'000;

  /// Must be called in a Scope. `idle` is a stream in which nothing waits.
  ClockAnchor(CudaContext& context, cuda::CUstream idle) : event_(context), other_(context) {
    constexpr int kTries = 5;
    for (int i = 0; i < kTries; ++i) {
      const int64_t before = trace::now();
      const TimedEvent& event = best_ == &event_ ? other_ : event_;
      context.check(event.record(idle), "reading the clock");
      context.check(event.wait(), "reading the clock");
      const int64_t error = (trace::now() - before + 1) / 2;
      if (best_ && error >= error_) continue;
      best_ = &event;
      error_ = error;
      time_ = before + error;
    }
  }

  /// The time on the host's clock; the true time is at most `error` earlier or later.
  int64_t time() const { return time_; }
  int64_t error() const { return error_; }
  bool is_old() const { return trace::now() - time_ > kLifetime; }
  /// The time of a later event, which must be complete.
  int64_t time_of(const TimedEvent& event) const {
    return time_ + static_cast<int64_t>(event.since(*best_));
  }

 private:
  const TimedEvent event_, other_;
  const TimedEvent* best_ = nullptr;  // one of the two
  int64_t time_ = 0, error_ = 0;
};

namespace {

std::unique_lock<std::mutex> turn_if_traced(std::mutex& copies) {
  return trace::is_on() ? std::unique_lock(copies) : std::unique_lock<std::mutex>();
}

std::shared_ptr<CudaContext> open_context(const Device& device, const CudaSystem& system) {
  if (system.forks() != fork_count()) {
    fail(codes::kForkedChild,
         fmt::format("this process was forked from one that had opened the CUDA driver, so it "
                     "cannot use {}",
                     device.name()),
         {.location = {}, .node = "", .fix = "call fork before anything asks for GPUs"});
  }
  return std::make_shared<CudaContext>(*system.api(), device.index(), device.name());
}

class CudaStopwatch : public Stopwatch {
 public:
  /// Must be called in a Scope. Without an anchor, the time at which it begins is not known.
  CudaStopwatch(CudaContext& context, cuda::CUstream stream,
                std::shared_ptr<const ClockAnchor> anchor)
      : context_(context),
        stream_(stream),
        anchor_(std::move(anchor)),
        begin_(context),
        end_(context) {
    context_.check(begin_.record(stream_), "recording an event");
  }

  void stop() override {
    const CudaContext::Scope scope(context_);
    end_.record(stream_);
  }

  double seconds() override {
    const CudaContext::Scope scope(context_);
    return end_.wait() == cuda::CUDA_SUCCESS ? 1e-9 * end_.since(begin_) : 0;
  }

  int64_t begin() override {
    const CudaContext::Scope scope(context_);
    const bool known = anchor_ && begin_.wait() == cuda::CUDA_SUCCESS;
    return known ? anchor_->time_of(begin_) : 0;
  }

 private:
  CudaContext& context_;
  const cuda::CUstream stream_;
  const std::shared_ptr<const ClockAnchor> anchor_;
  const TimedEvent begin_, end_;
};

}  // namespace

CudaDriver::CudaDriver(Device device, const CudaSystem& system)
    : CudaDriver(device, system, open_context(device, system)) {}

CudaDriver::CudaDriver(Device device, const CudaSystem& system,
                       std::shared_ptr<CudaContext> context)
    : DeviceDriver(device, std::make_unique<CudaMemory>(context), WorkQueue::Mode::Immediate),
      context_(std::move(context)),
      gpu_(system.gpus()[static_cast<size_t>(device.index())]),
      target_(gpu_target(gpu_)),
      uploads_(*context_),
      downloads_(*context_),
      strided_copies_(*context_) {}

const Target& CudaDriver::target() {
  if (target_) return *target_;
  fail(codes::kUnsupportedGpu,
       fmt::format("{}, {}, has the compute capability {}; code is generated for 8.0 and later",
                   name(), gpu_.name, capability_text(gpu_)));
}

std::optional<int> CudaDriver::suitability(const Target& target, std::string_view format) const {
  const bool is_cubin = format == "cubin";
  if ((!is_cubin && format != "ptx") || !why_not(gpu_, target).empty()) return std::nullopt;
  // Machine code runs only on GPUs of its own generation. PTX also runs on later ones.
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
  queue().drain();
  context_->synchronize();
  queue().synchronize();
}

void CudaDriver::zero(DeviceStream* stream, std::byte* data, size_t size) {
  if (size == 0) return;
  if (CallRecord* const record = CudaContext::recording())
    return record->add_fill(address(data), size);
  const CudaContext::Scope scope(*context_);
  context_->check(context_->api().memset_d8_async(address(data), 0, size, native(stream)),
                  "filling memory");
}

void CudaDriver::copy(DeviceStream* stream, std::byte* to, const std::byte* from, size_t size) {
  if (size == 0) return;
  if (CallRecord* const record = CudaContext::recording()) {
    return record->add_copy(address(to), address(from), size);
  }
  const CudaContext::Scope scope(*context_);
  context_->check(
      context_->api().memcpy_d_to_d_async(address(to), address(from), size, native(stream)),
      "a copy on the device");
}

void CudaDriver::copy_strided(DeviceStream* stream, std::byte* to, const std::byte* from,
                              const StridedCopy& copy) {
  const CudaContext::Scope scope(*context_);
  strided_copies_.copy(native(stream), to, from, copy);
}

StreamRef CudaDriver::make_stream(std::optional<void*> foreign) {
  const CudaContext::Scope scope(*context_);
  if (!foreign) return std::make_shared<CudaStream>(*context_, allocator(), std::nullopt);
  // All handles of one stream share its memory.
  const std::lock_guard lock(foreign_mutex_);
  std::erase_if(foreign_, [](const auto& known) { return known.second.expired(); });
  if (const StreamRef known = foreign_[*foreign].lock()) return known;
  auto made =
      std::make_shared<CudaStream>(*context_, allocator(), static_cast<cuda::CUstream>(*foreign));
  foreign_[*foreign] = made;
  return made;
}

StreamRef CudaDriver::make_urgent_stream() {
  const CudaContext::Scope scope(*context_);
  return std::make_shared<CudaStream>(*context_, allocator(), std::nullopt, /*urgent=*/true);
}

std::shared_ptr<Fence> CudaDriver::fence(DeviceStream* stream) {
  const CudaContext::Scope scope(*context_);
  auto fence = context_->fence(native(stream));
  context_->note_used(static_cast<CudaStream*>(stream), fence);
  return fence;
}

void CudaDriver::wait_for(DeviceStream* stream, Fence& fence) {
  wait_for_native(stream, fence.native());
}

void CudaDriver::wait_for_native(DeviceStream* stream, void* event) {
  const CudaContext::Scope scope(*context_);
  context_->check(
      context_->api().stream_wait_event(native(stream), static_cast<cuda::CUevent>(event), 0),
      "ordering streams");
}

void CudaDriver::release_after(DeviceStream* stream, std::vector<std::shared_ptr<Fence>> fences,
                               std::shared_ptr<const void> owner) noexcept {
  try {
    fences.push_back(fence(stream));
  } catch (const std::exception&) {
    // The device is lost, or there is no memory for an event, so the fences that exist must be
    // enough.
  }
  releaser_.add(std::move(fences), std::move(owner));
}

std::byte* CudaDriver::allocate_pinned(size_t size) {
  const CudaContext::Scope scope(*context_);
  void* memory = nullptr;
  context_->check(context_->api().mem_host_alloc(&memory, size, 0), "pinned memory of the host");
  return static_cast<std::byte*>(memory);
}

void CudaDriver::free_pinned(std::byte* data, size_t) noexcept {
  const CudaContext::Scope scope(*context_);
  context_->api().mem_free_host(data);
}

std::shared_ptr<Fence> CudaDriver::copy_pinned(DeviceStream* stream, std::byte* to,
                                               const std::byte* from, size_t size, bool to_host,
                                               Fence* after) {
  const CudaContext::Scope scope(*context_);
  const cuda::Api& api = context_->api();
  if (!to_host) {
    context_->check(api.memcpy_h_to_d_async(address(to), from, size, native(stream)),
                    "a copy to the device");
    return fence(stream);
  }
  const std::shared_ptr<Fence> made = after ? nullptr : fence(stream);
  const auto event = static_cast<cuda::CUevent>(after ? after->native() : made->native());
  context_->check(api.stream_wait_event(context_->reads(), event, 0), "ordering a copy");
  context_->check(api.memcpy_d_to_h_async(to, address(from), size, context_->reads()),
                  "a copy from the device");
  return context_->fence(context_->reads());
}

bool CudaDriver::owns(const void* data) const {
  const CudaContext::Scope scope(*context_);
  const auto ask = [&](cuda::CUpointer_attribute attribute, auto& value) {
    return context_->api().pointer_get_attribute(&value, attribute,
                                                 address(static_cast<const std::byte*>(data))) ==
           cuda::CUDA_SUCCESS;
  };
  unsigned type = 0;
  int ordinal = -1;
  return ask(cuda::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, type) && type == cuda::CU_MEMORYTYPE_DEVICE &&
         ask(cuda::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ordinal) && ordinal == device().index();
}

std::shared_ptr<Stopwatch> CudaDriver::start_stopwatch(DeviceStream* stream) {
  return start_stopwatch_in(native(stream));
}

std::shared_ptr<Stopwatch> CudaDriver::start_stopwatch_in(cuda::CUstream stream) {
  const CudaContext::Scope scope(*context_);
  return std::make_shared<CudaStopwatch>(*context_, stream,
                                         trace::is_on() ? clock_anchor() : nullptr);
}

std::shared_ptr<const ClockAnchor> CudaDriver::clock_anchor() {
  const std::lock_guard lock(anchor_mutex_);
  if (!anchor_ || anchor_->is_old()) {
    anchor_ = std::make_shared<const ClockAnchor>(*context_, context_->idle());
    trace_clock_error(*this, anchor_->error());
  }
  return anchor_;
}

void CudaDriver::copy_from_host(DeviceStream* stream, std::byte* to,
                                std::span<const std::byte> from) {
  if (from.empty()) return;
  const CudaContext::Scope scope(*context_);
  const auto turn = turn_if_traced(copies_in_);
  const DeviceSpan span(*this, Lane::CopiesIn, "from the host", from.size(),
                        [&] { return start_stopwatch(stream); });
  uploads_.copy(to, from, native(stream));
}

void CudaDriver::copy_to_host(std::span<std::byte> to, const std::byte* from, Fence* after) {
  if (to.empty()) return;
  const CudaContext::Scope scope(*context_);
  const auto now = after ? nullptr : context_->fence(context_->work());
  CudaFence& made = now ? *now : static_cast<CudaFence&>(*after);
  const auto turn = turn_if_traced(copies_out_);
  context_->check(context_->api().stream_wait_event(context_->reads(), made.event(), 0),
                  "ordering a copy");
  const DeviceSpan span(*this, Lane::CopiesOut, "to the host", to.size(),
                        [this] { return start_stopwatch_in(context_->reads()); });
  downloads_.copy(to, from, made);
}

void CudaDriver::copy_from_device(std::byte* to, DeviceDriver& source, const std::byte* from,
                                  size_t size, Fence* after) {
  auto* const peer = dynamic_cast<CudaDriver*>(&source);
  if (!peer) return DeviceDriver::copy_from_device(to, source, from, size, after);
  CudaContext& there = *peer->context_;
  const cuda::Api& api = context_->api();
  // The previous contents of `to` may still be in use.
  const std::shared_ptr<Fence> free = fence(nullptr);
  const std::shared_ptr<Fence> made = after ? nullptr : peer->fence(nullptr);
  const auto event = [](Fence& fence) { return static_cast<CudaFence&>(fence).event(); };
  std::shared_ptr<CudaFence> copied;
  {
    const CudaContext::Scope scope(there);
    there.enable_peer(*context_);
    there.check(api.stream_wait_event(there.reads(), event(after ? *after : *made), 0),
                "ordering a copy");
    there.check(api.stream_wait_event(there.reads(), event(*free), 0), "ordering a copy");
    const auto turn = turn_if_traced(peer->copies_out_);
    const DeviceSpan span(*peer, Lane::CopiesOut, "to another device", size,
                          [peer, &there] { return peer->start_stopwatch_in(there.reads()); });
    there.check(api.memcpy_peer_async(address(to), context_->handle(), address(from),
                                      there.handle(), size, there.reads()),
                "a copy to another device");
    copied = there.fence(there.reads());
    // After this, the source may be freed, and later work may write to its memory.
    there.check(api.stream_wait_event(there.work(), copied->event(), 0), "ordering a copy");
  }
  const CudaContext::Scope scope(*context_);
  context_->check(api.stream_wait_event(context_->work(), copied->event(), 0), "ordering a copy");
}

}  // namespace braze
