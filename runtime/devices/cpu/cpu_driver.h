// cpu_driver.h — the devices "cpu", "cpu:1" ... They have host memory, code in images, and their
// own threads.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/devices/cpu/thread_pool.h"
#include "runtime/devices/driver.h"

namespace braze {

/// The function of a kernel's phase, which program.h describes.
using KernelFunction = void (*)(void* const* buffers, const int64_t* scalars, void* scratch,
                                int64_t begin, int64_t end);

/// Calls the function. clang's -fsanitize=function reads a record of the function's type before its
/// first instruction. Generated code has no such record, so this call is not checked.
#if defined(__clang__)
__attribute__((no_sanitize("function")))
#endif
inline void
call_kernel(KernelFunction function, void* const* buffers, const int64_t* scalars, void* scratch,
            int64_t begin, int64_t end) {
  function(buffers, scalars, scratch, begin, end);
}

/// An artifact of the format "function", whose phases are functions of this process. It is for
/// tests and benchmarks of the runtime: a program with such an artifact has no meaning elsewhere.
Artifact function_artifact(std::string kernel, std::vector<KernelFunction> phases);

/// Runs artifacts of the formats "image" and "function".
class CpuDriver : public DeviceDriver {
 public:
  /// `threads` may change at any time. The next launch uses the new number, but not more threads
  /// than its call has reserved scratch for.
  CpuDriver(Device device, const std::atomic<int>& threads);

  const Target& target() override;
  std::optional<int> suitability(const Target& target, std::string_view format) const override;
  std::unique_ptr<LoadedProgram> load(std::shared_ptr<const Program> program) override;
  void zero(DeviceStream* stream, std::byte* data, size_t size) override;
  void copy(DeviceStream* stream, std::byte* to, const std::byte* from, size_t size) override;

  /// Reserves scratch of `bytes` for each thread. Any thread may call it. Throws ResourceExhausted
  /// if memory is short.
  std::shared_ptr<const Scratch> reserve_scratch(int64_t bytes);
  /// Runs the phases of one kernel, for each of its members. The call has reserved scratch for
  /// `scratch_bytes`. Only the thread that executes the stream may call it.
  void launch(std::span<const KernelFunction> phases, size_t members, int64_t scratch_bytes,
              const LaunchArguments& arguments);

 private:
  /// Calls `body(begin, size)` for parts of so many bytes, in several threads if there are many.
  void in_parts(size_t size, const std::function<void(size_t, size_t)>& body);

  const std::atomic<int>& threads_;
  std::mutex targets_mutex_;
  std::vector<std::unique_ptr<const Target>> targets_;  // one for each number of threads

  std::mutex scratch_mutex_;
  std::shared_ptr<const Scratch> scratch_;  // the largest so far, for all calls from now on

  ThreadPool pool_;  // used while work of the stream is executed
};

}  // namespace braze
