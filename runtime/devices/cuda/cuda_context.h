// cuda_context.h — the primary context of one GPU: its queues, its fences, and the errors on it.
//
// The CUDA runtime uses the primary context too, so Braze shares a GPU's memory and modules with
// other libraries of the process. The context is current only while a call needs it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/program/program.h"
#include "runtime/devices/cuda/driver_api.h"
#include "runtime/devices/driver.h"

namespace braze {

namespace codes {
inline constexpr Code kCudaFailed{"cuda-failed", ErrorKind::Device,
                                  "A function of the CUDA driver failed."};
inline constexpr Code kKernelFault{
    "kernel-fault", ErrorKind::Device,
    "A kernel failed on a GPU, which is lost to the process from then on."};
}  // namespace codes

class CallRecord;
class CudaContext;

/// A point in one of a GPU's queues.
class CudaFence : public Fence {
 public:
  /// A fence that will be recorded in `stream`. Must be called in a Scope.
  CudaFence(CudaContext& context, cuda::CUstream stream);
  ~CudaFence() override;

  cuda::CUevent event() const { return event_; }
  void wait() override;
  bool done() override;
  void* native() const override { return event_; }
  uint64_t number() const override { return number_; }

 private:
  friend class CudaContext;
  CudaContext& context_;
  cuda::CUevent event_ = nullptr;
  uint64_t launches_ = 0;  // the number of launches before it
  uint64_t number_ = 0;
};

/// A stream beside the main stream.
class CudaStream : public DeviceStream {
 public:
  /// A new stream, or a stream of the host program, which keeps owning it. `allocator` is that of
  /// the device. Blocks of a new stream that is `urgent` come before waiting blocks of others. Must
  /// be called in a Scope.
  CudaStream(CudaContext& context, Allocator& allocator, std::optional<cuda::CUstream> foreign,
             bool urgent = false);
  /// Gives its memory to the main stream.
  ~CudaStream() override;

  void* native() const override { return stream_; }
  cuda::CUstream get() const { return stream_; }

 private:
  friend class CudaContext;
  CudaContext& context_;
  Allocator& allocator_;
  cuda::CUstream stream_ = nullptr;
  const bool is_foreign_;
  std::shared_ptr<CudaFence> last_;  // guarded by the context's mutex
};

/// The primary context of one GPU. Thread-safe; it lives as long as the process.
class CudaContext {
 public:
  /// `device` is the name in messages.
  CudaContext(const cuda::Api& api, int index, std::string device);
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  /// Makes the context current on this thread, and restores the previous one at the end.
  class Scope {
   public:
    explicit Scope(const CudaContext& context);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const cuda::Api& api_;
    bool pushed_ = false;
  };

  const cuda::Api& api() const { return api_; }
  cuda::CUcontext handle() const { return context_; }
  const std::string& device() const { return device_; }
  /// The main stream: launches, and everything else that writes the GPU's memory.
  cuda::CUstream work() const { return work_; }
  /// The CUstream of a stream; null stands for the main stream.
  cuda::CUstream native(const DeviceStream* stream) const {
    return stream ? static_cast<const CudaStream*>(stream)->get() : work_;
  }
  /// The record into which this thread puts its work while it records a call, in place of a stream;
  /// null outside of `record`.
  static CallRecord* recording();
  /// The stream of copies to the host, which do not wait for work that comes after what they copy.
  cuda::CUstream reads() const { return reads_; }

  /// A stream that never waits for anything.
  cuda::CUstream idle() const { return idle_; }

  struct Recorded {
    cuda::CUgraphExec graph = nullptr;  ///< null if it cannot be recorded
    std::string failure = {};           ///< why not
  };
  /// Records the work that `body` puts into `recording()`, without doing it. Must be called in a
  /// Scope.
  Recorded record(const std::function<void()>& body);

  /// A fence after everything in `stream`. Must be called in a Scope.
  std::shared_ptr<CudaFence> fence(cuda::CUstream stream);
  /// Notes the last point in a stream at which Braze used it. Freeing memory waits for that point.
  /// Null stands for `work`.
  void note_used(CudaStream* stream, std::shared_ptr<CudaFence> fence);
  /// Blocks until everything that uses the GPU's memory is complete, in all streams. Must be called
  /// in a Scope.
  cuda::CUresult finish_work();

  /// If `result` is not success, throws its error: ResourceExhausted or Device. `what` names the
  /// operation.
  void check(cuda::CUresult result, std::string_view what) {
    if (result != cuda::CUDA_SUCCESS) [[unlikely]]
      fail_with(result, what);
  }
  [[noreturn]] void fail_with(cuda::CUresult result, std::string_view what);

  /// Notes that a launch is in `stream`, so that a fault can be traced to it.
  void note_launch(const std::shared_ptr<const Program>& program, uint32_t launch,
                   const DeviceStream* stream);
  /// Blocks until all queues are empty.
  void synchronize();

  /// Allows direct access to the memory of other GPUs, if the machine can do that.
  void enable_peer(const CudaContext& peer);

 private:
  friend class CudaFence;
  friend class CudaStream;
  struct Launched {
    std::shared_ptr<const Program> program;
    uint32_t launch = 0;
    bool in_main = true;
  };
  // The number of unused events that are kept. There is room for them from the beginning.
  static constexpr size_t kKeptEvents = 1024;
  // The number of launches that are remembered, so that a fault can be traced to one of them.
  static constexpr size_t kRemembered = 64;

  void note_complete(uint64_t launches);
  std::vector<std::string> suspects() const;
  std::string fault_text(cuda::CUresult result) const;

  const cuda::Api& api_;
  const std::string device_;
  cuda::CUdevice index_ = 0;
  cuda::CUcontext context_ = nullptr;
  cuda::CUstream work_ = nullptr;
  cuda::CUstream reads_ = nullptr;
  cuda::CUstream idle_ = nullptr;
  cuda::CUstream capture_ = nullptr;  // nothing is ever done there, only recorded
  std::mutex capture_mutex_;

  std::mutex fences_mutex_;  // keeps fences in the order of their numbers
  uint64_t fences_ = 0;      // the number of fences recorded so far

  mutable std::mutex mutex_;
  std::vector<cuda::CUevent> events_;  // unused
  std::vector<CudaStream*> streams_;   // all but the main one
  uint32_t pools_ = 0;                 // the number of streams made so far
  std::vector<const CudaContext*> peers_;
  std::array<Launched, kRemembered> launched_;  // a ring, by number of the launch
  uint64_t launches_ = 0;                       // launches so far
  uint64_t complete_ = 0;                       // launches that are known to be complete
  std::string fault_;                           // of the first fault; empty if there is none
};

/// The text of what a launch of `program` computes, with the user's lines: "kernel @add, which
/// computes add.3 : f32[n] at model.cpp:12".
std::string kernel_text(const Program& program, const Launch& launch);

}  // namespace braze
