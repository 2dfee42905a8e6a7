#include "runtime/devices/cuda/cuda_context.h"

#include <algorithm>
#include <new>

#include "braze/trace.h"
#include "ir/program/text.h"
#include "ir/support/env.h"
#include "ir/support/fork.h"
#include "ir/support/text.h"
#include "runtime/devices/cuda/call_record.h"

namespace braze {

namespace {

/// Whether an error is permanent: every later call of the context returns it, and its memory is
/// lost.
bool is_fault(cuda::CUresult result) {
  switch (result) {
    case cuda::CUDA_ERROR_ECC_UNCORRECTABLE:
    case cuda::CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case cuda::CUDA_ERROR_CONTAINED:
    case cuda::CUDA_ERROR_ILLEGAL_ADDRESS:
    case cuda::CUDA_ERROR_LAUNCH_TIMEOUT:
    case cuda::CUDA_ERROR_ASSERT:
    case cuda::CUDA_ERROR_HARDWARE_STACK_ERROR:
    case cuda::CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case cuda::CUDA_ERROR_MISALIGNED_ADDRESS:
    case cuda::CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case cuda::CUDA_ERROR_INVALID_PC:
    case cuda::CUDA_ERROR_LAUNCH_FAILED:
      return true;
    default:
      return false;
  }
}

thread_local CallRecord* recording_of_thread = nullptr;

/// Makes this thread's work go to a CallRecord, for a scope.
class RecordingScope {
 public:
  explicit RecordingScope(CallRecord& call) { recording_of_thread = &call; }
  ~RecordingScope() { recording_of_thread = nullptr; }
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;
};

/// The first fault of any GPU of the process; if there was none, it becomes `text`. The driver
/// reports a fault to the contexts of other GPUs as well, and does not say which GPU it came from.
std::string first_fault(const std::string& text) {
  static std::mutex mutex;
  static std::string first;
  const std::lock_guard lock(mutex);
  if (first.empty()) first = text;
  return first;
}

}  // namespace

std::string kernel_text(const Program& program, const Launch& launch) {
  if (launch.ops.empty()) return fmt::format("kernel @{}", launch.name);
  return fmt::format(
      "kernel @{}, which computes {}", launch.name,
      join(op_texts(program, launch), ", ", [](const std::string& op) { return op; }));
}

CudaFence::CudaFence(CudaContext& context, cuda::CUstream stream) : context_(context) {
  {
    const std::lock_guard lock(context_.mutex_);
    if (stream == context_.work_) launches_ = context_.launches_;
    if (!context_.events_.empty()) {
      event_ = context_.events_.back();
      context_.events_.pop_back();
      return;
    }
  }
  context_.check(context_.api().event_create(&event_, cuda::CU_EVENT_DISABLE_TIMING),
                 "making an event");
}

CudaFence::~CudaFence() {
  if (is_forked()) return;
  {
    // When an event is recorded again, it no longer stands for its earlier point. Waits that began
    // before still wait for that point.
    const std::lock_guard lock(context_.mutex_);
    if (context_.events_.size() < CudaContext::kKeptEvents) {
      context_.events_.push_back(event_);
      return;
    }
  }
  const CudaContext::Scope scope(context_);
  context_.api().event_destroy(event_);
}

void CudaFence::wait() {
  const TraceSpan span("wait", "wait for GPU");
  const CudaContext::Scope scope(context_);
  context_.check(context_.api().event_synchronize(event_), "waiting for a result");
  context_.note_complete(launches_);
}

bool CudaFence::done() {
  const CudaContext::Scope scope(context_);
  return context_.api().event_query(event_) != cuda::CUDA_ERROR_NOT_READY;
}

CudaStream::CudaStream(CudaContext& context, Allocator& allocator,
                       std::optional<cuda::CUstream> foreign, bool urgent)
    : DeviceStream([&] {
        const std::lock_guard lock(context.mutex_);
        return ++context.pools_;
      }()),
      context_(context),
      allocator_(allocator),
      is_foreign_(foreign.has_value()) {
  if (foreign) {
    stream_ = *foreign;
  } else {
    // The driver takes its highest priority for any that is higher.
    constexpr int kHighest = -1000;
    context_.check(context_.api().stream_create_with_priority(
                       &stream_, cuda::CU_STREAM_NON_BLOCKING, urgent ? kHighest : 0),
                   "making a stream");
  }
  const std::lock_guard lock(context_.mutex_);
  context_.streams_.push_back(this);
}

CudaStream::~CudaStream() {
  if (is_forked()) return;
  const CudaContext::Scope scope(context_);
  // No array uses its memory any more, so `last_` does not change.
  if (last_) context_.api().stream_wait_event(context_.work(), last_->event(), 0);
  allocator_.give_to_main_pool(pool());
  {
    const std::lock_guard lock(context_.mutex_);
    std::erase(context_.streams_, this);
  }
  if (!is_foreign_) context_.api().stream_destroy(stream_);
}

CudaContext::CudaContext(const cuda::Api& api, int index, std::string device)
    : api_(api), device_(std::move(device)) {
  check(api_.device_get(&index_, index), "opening the device");
  check(api_.device_primary_ctx_retain(&context_, index_), "making a context");
  const Scope scope(*this);
  // These streams are not ordered with the default stream of other libraries.
  check(api_.stream_create(&work_, cuda::CU_STREAM_NON_BLOCKING), "making a stream");
  check(api_.stream_create(&reads_, cuda::CU_STREAM_NON_BLOCKING), "making a stream");
  check(api_.stream_create(&idle_, cuda::CU_STREAM_NON_BLOCKING), "making a stream");
  check(api_.stream_create(&capture_, cuda::CU_STREAM_NON_BLOCKING), "making a stream");
  events_.reserve(kKeptEvents);
}

CudaContext::Scope::Scope(const CudaContext& context) : api_(context.api_) {
  cuda::CUcontext current = nullptr;
  api_.ctx_get_current(&current);
  if (current != context.context_) {
    pushed_ = api_.ctx_push_current(context.context_) == cuda::CUDA_SUCCESS;
  }
}

CudaContext::Scope::~Scope() {
  cuda::CUcontext ours = nullptr;
  if (pushed_) api_.ctx_pop_current(&ours);
}

CallRecord* CudaContext::recording() { return recording_of_thread; }

CudaContext::Recorded CudaContext::record(const std::function<void()>& body) {
  CallRecord call;
  try {
    const RecordingScope scope(call);
    body();
  } catch (const std::bad_alloc&) {
    return {nullptr, "the host has no memory left"};
  } catch (const std::exception& error) {
    return {nullptr, error.what()};
  }
  // From here to the end of the capture nothing throws, and only the driver allocates memory. Other
  // threads may use the driver at the same time, in any way.
  const std::lock_guard turn(capture_mutex_);
  cuda::CUgraph graph = nullptr;
  cuda::CUresult result = api_.stream_begin_capture(capture_, cuda::CU_STREAM_CAPTURE_MODE_RELAXED);
  if (result == cuda::CUDA_SUCCESS) {
    result = call.issue(api_, capture_);
    const cuda::CUresult ended = api_.stream_end_capture(capture_, &graph);
    if (result == cuda::CUDA_SUCCESS) result = ended;
  }
  cuda::CUgraphExec recorded = nullptr;
  if (result == cuda::CUDA_SUCCESS) {
    result = api_.graph_instantiate_with_flags(&recorded, graph, 0);
  }
  if (graph) api_.graph_destroy(graph);
  if (result == cuda::CUDA_SUCCESS) return {.graph = recorded};
  return {nullptr, cuda::error_text(api_, result)};
}

std::shared_ptr<CudaFence> CudaContext::fence(cuda::CUstream stream) {
  auto fence = std::make_shared<CudaFence>(*this, stream);
  // Several threads may do this for one stream, so a lock keeps the numbers in the order of the
  // events.
  const std::lock_guard turn(fences_mutex_);
  check(api_.event_record(fence->event(), stream), "recording an event");
  fence->number_ = ++fences_;
  return fence;
}

void CudaContext::note_used(CudaStream* stream, std::shared_ptr<CudaFence> fence) {
  if (!stream) return;
  const std::lock_guard lock(mutex_);
  if (!stream->last_ || stream->last_->number() < fence->number()) stream->last_.swap(fence);
}

cuda::CUresult CudaContext::finish_work() {
  std::vector<std::shared_ptr<CudaFence>> others;
  {
    const std::lock_guard lock(mutex_);
    for (const CudaStream* stream : streams_) {
      if (stream->last_) others.push_back(stream->last_);
    }
  }
  cuda::CUresult result = api_.stream_synchronize(work_);
  for (const auto& fence : others) {
    const cuda::CUresult other = api_.event_synchronize(fence->event());
    if (result == cuda::CUDA_SUCCESS) result = other;
  }
  return result;
}

void CudaContext::synchronize() {
  const Scope scope(*this);
  uint64_t launches = 0;
  {
    const std::lock_guard lock(mutex_);
    launches = launches_;
  }
  check(finish_work(), "waiting for the device");
  note_complete(launches);
  check(api_.stream_synchronize(reads_), "waiting for copies");
}

void CudaContext::enable_peer(const CudaContext& peer) {
  const std::lock_guard lock(mutex_);
  if (std::find(peers_.begin(), peers_.end(), &peer) != peers_.end()) return;
  peers_.push_back(&peer);
  int can = 0;
  api_.device_can_access_peer(&can, index_, peer.index_);
  // If this fails, copies go through the host.
  if (can) api_.ctx_enable_peer_access(peer.context_, 0);
}

void CudaContext::note_launch(const std::shared_ptr<const Program>& program, uint32_t launch,
                              const DeviceStream* stream) {
  Launched forgotten{program, launch, stream == nullptr};
  const std::lock_guard lock(mutex_);
  std::swap(launched_[launches_ % kRemembered], forgotten);
  ++launches_;
}

void CudaContext::note_complete(uint64_t launches) {
  const std::lock_guard lock(mutex_);
  complete_ = std::max(complete_, launches);
}

std::vector<std::string> CudaContext::suspects() const {
  std::vector<const Launch*> found;
  std::vector<std::string> texts;
  const uint64_t oldest = launches_ > kRemembered ? launches_ - kRemembered : 0;
  for (uint64_t i = oldest; i < launches_; ++i) {
    const Launched& launched = launched_[i % kRemembered];
    // `complete_` counts launches in the main stream only.
    if (i < complete_ && launched.in_main) continue;
    const Launch* launch = &launched.program->launches[launched.launch];
    if (std::find(found.begin(), found.end(), launch) != found.end()) continue;
    found.push_back(launch);
    texts.push_back(kernel_text(*launched.program, *launch));
  }
  return texts;
}

std::string CudaContext::fault_text(cuda::CUresult result) const {
  const std::vector<std::string> kernels = suspects();
  std::string text = fmt::format("{} failed: {}", device_, cuda::error_text(api_, result));
  if (kernels.size() == 1) {
    text += fmt::format(" in {}", kernels[0]);
  } else if (!kernels.empty()) {
    text += fmt::format(" in one of the last {} kernels:\n  {}", kernels.size(),
                        join(kernels, "\n  ", [](const std::string& kernel) { return kernel; }));
  }
  return text + fmt::format(
                    "\nArrays on {} are lost, and this process cannot use it any more; the CPU "
                    "still works, other GPUs may fail too",
                    device_);
}

void CudaContext::fail_with(cuda::CUresult result, std::string_view what) {
  if (result == cuda::CUDA_ERROR_OUT_OF_MEMORY) {
    fail(codes::kOutOfMemory, fmt::format("{} has no memory left for {}", device_, what));
  }
  if (!is_fault(result)) {
    fail(codes::kCudaFailed,
         fmt::format("{}: {} failed: {}", device_, what, cuda::error_text(api_, result)));
  }
  std::string message;
  {
    const std::lock_guard lock(mutex_);
    if (fault_.empty()) {
      fault_ = fault_text(result);
      const std::string first = first_fault(fault_);
      if (first != fault_) fault_ += fmt::format("\nBefore it, another GPU failed: {}", first);
    }
    message = fault_;
  }
  fail(codes::kKernelFault, std::move(message),
       {.location = {},
        .node = "",
        .fix = fmt::format("set {}=1, which shows which kernel it is", kEnvSyncLaunches.name)});
}

}  // namespace braze
