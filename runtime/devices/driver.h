// driver.h — the interface that each kind of device implements for the rest of the runtime. Each
// kind has its own folder.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "braze/device.h"
#include "braze/error.h"
#include "ir/graph/custom_calls.h"
#include "ir/program/program.h"
#include "ir/program/verify.h"
#include "runtime/execution/work_queue.h"
#include "runtime/memory/allocator.h"

namespace braze {

namespace codes {
inline constexpr Code kUnsupportedProgram{
    "unsupported-program", ErrorKind::Unsupported,
    "The device cannot run code of this format or for this target."};
inline constexpr Code kNoNativeStreams{"no-native-streams", ErrorKind::Unsupported,
                                       "The device has no CUDA streams or events."};
}  // namespace codes

/// A stream: an order in which a device does its work. Calls use the main stream unless they are
/// told otherwise; work in further streams can run at the same time. Memory belongs to the stream
/// for which it was allocated, and is reused in the order of that stream. If another stream has
/// used the memory, the owning stream waits for it before the memory is reused.
class DeviceStream {
 public:
  explicit DeviceStream(uint32_t pool) : pool_(pool) {}
  virtual ~DeviceStream() = default;
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;

  /// The number of its memory in the device's allocator. Numbers are never used twice.
  uint32_t pool() const { return pool_; }
  /// The driver's own object for the stream, a CUstream.
  virtual void* native() const = 0;

 private:
  const uint32_t pool_;
};

/// A stream; null is the device's main one.
using StreamRef = std::shared_ptr<DeviceStream>;

/// The number of a stream's memory in the allocator, and of its lane in the work queue.
inline uint32_t pool_of(const DeviceStream* stream) { return stream ? stream->pool() : 0; }

/// A dense copy of strided memory, along axes of which the outermost comes first. An element of the
/// copy is a dense part of the memory, and may be many elements of an array.
struct StridedCopy {
  static constexpr size_t kMostAxes = 16;
  struct Axis {
    int64_t extent = 1, stride = 0;  ///< the stride is in bytes
  };
  size_t bytes = 0;  ///< of an element
  std::vector<Axis> axes = {};
};

/// Memory that the launches of a call share besides their buffers.
struct Scratch {
  Buffer memory;
  size_t size = 0;
};

/// One launch, with the values of all its expressions.
struct LaunchArguments {
  uint32_t launch = 0;                 ///< the position in Program::launches
  DeviceStream* stream = nullptr;      ///< the stream in which it runs
  std::span<void* const> buffers;      ///< as Launch::buffers
  std::span<const uint64_t> sizes;     ///< bytes of each of `buffers`
  std::span<const int64_t> scalars;    ///< as Launch::scalars
  std::span<const int64_t> instances;  ///< as Launch::instances; at least one is not 0
  std::span<const int64_t> symbols;    ///< as Program::symbols
  bool serial = false;                 ///< too little work to share between threads
  double call_seconds = 0;             ///< estimate of the whole call; 0 if unknown
  const Scratch* scratch = nullptr;    ///< the result of LoadedProgram::reserve for the call
};

/// Launches of a call that follow one another in a stream, and that wait for nothing in other
/// streams between them: all of the call, or those between two collectives or custom calls.
struct Stretch {
  uint32_t first = 0, last = 0;      ///< positions in Program::launches; `last` is behind the end
  DeviceStream* stream = nullptr;    ///< the stream in which they run
  std::span<void* const> slots;      ///< the address of each of Program::slots
  std::span<const int64_t> symbols;  ///< as Program::symbols
};

/// A program's code, ready on a device. The threads that execute the device's work queue use it:
/// one at a time, except on a device with several streams. It must not take memory from the
/// device's allocator, which may be waiting for the queue.
class LoadedProgram {
 public:
  virtual ~LoadedProgram() = default;
  virtual void launch(const LaunchArguments& arguments) = 0;
  /// Calls a function of the host program for a custom call, with the driver's own object for the
  /// stream into which the function puts its work; null on a host device.
  virtual void call_function(const LaunchArguments& /*arguments*/,
                             const std::function<void(void*)>& function) {
    function(nullptr);
  }
  /// Takes the memory that the launches of a call need besides their buffers; null if they need
  /// none. Any thread calls it before the call is submitted, so that ResourceExhausted is thrown
  /// before anything has happened. Several calls may get the same memory.
  virtual std::shared_ptr<const Scratch> reserve() { return nullptr; }
  /// Does one stretch of a call. `launches` makes the launches, fills and copies of the stretch.
  /// The function calls it, or repeats the recorded ones of an earlier call with the same addresses
  /// and symbols.
  virtual void run(const Stretch& /*stretch*/, const std::function<void()>& launches) {
    launches();
  }
};

/// Measures the time of a part of a device's own queue. Thread-safe after it was stopped.
class Stopwatch {
 public:
  virtual ~Stopwatch() = default;
  virtual void stop() = 0;
  /// Blocks until that part is complete, and returns its time; 0 if it failed.
  virtual double seconds() = 0;
  /// The time at which it began, on the clock of trace::now(). Call it when `seconds` has returned.
  /// 0 if it failed, or if no timeline was being written then.
  virtual int64_t begin() = 0;
};

class DeviceDriver {
 public:
  DeviceDriver(Device device, std::unique_ptr<MemorySource> memory,
               WorkQueue::Mode mode = WorkQueue::Mode::Background);
  virtual ~DeviceDriver() = default;
  DeviceDriver(const DeviceDriver&) = delete;
  DeviceDriver& operator=(const DeviceDriver&) = delete;

  const Device& device() const { return device_; }
  const std::string& name() const { return name_; }
  Allocator& allocator() { return allocator_; }
  /// Guards the record of the streams that used arrays whose memory they do not own.
  std::mutex& uses_mutex() { return uses_mutex_; }
  WorkQueue& queue() { return queue_; }

  virtual const Target& target() = 0;
  /// How well code in `format` (see Artifact) for `target` suits this device. A greater number is
  /// better; nullopt if the code does not run here.
  virtual std::optional<int> suitability(const Target& target, std::string_view format) const = 0;
  /// Loads a program, and keeps it alive. Throws Unsupported, with the reason, if this device
  /// cannot run it.
  virtual std::unique_ptr<LoadedProgram> load(std::shared_ptr<const Program> program) = 0;

  /// Whether the device's memory is the host's.
  virtual bool has_host_memory() const { return true; }
  /// The memory on which functions of the host program work here.
  virtual CustomMemory custom_memory() const { return CustomMemory::Host; }
  /// Blocks until everything submitted so far is complete, then rethrows the first error since the
  /// last call of this function.
  virtual void synchronize() { queue_.synchronize(); }

  /// A further stream: a new one, or one of the host program, which is given by the driver's own
  /// object for it. On a device that does one thing at a time, it returns null, and throws
  /// Unsupported for a `foreign` stream.
  virtual StreamRef make_stream(std::optional<void*> foreign);
  /// The driver's own object for the main stream; null if there is none.
  virtual void* main_stream() const { return nullptr; }

  // Functions for streams, which any thread may call.

  /// A fence after everything in `stream`; null if the device has no queue of its own.
  virtual std::shared_ptr<Fence> fence(DeviceStream* /*stream*/) { return nullptr; }
  /// Makes later work in `stream` wait for `fence`, which is not null and may belong to any device
  /// of this kind.
  virtual void wait_for(DeviceStream* stream, Fence& fence);
  /// The same for an event of the host program. Throws Unsupported on devices without events.
  virtual void wait_for_native(DeviceStream* stream, void* event);
  /// Releases `owner` when everything in `stream` and before `fences` is complete. Never blocks.
  virtual void release_after(DeviceStream* /*stream*/,
                             std::vector<std::shared_ptr<Fence>> /*fences*/,
                             std::shared_ptr<const void> owner) noexcept {
    owner.reset();
  }

  // Only the thread that executes the lane of `stream` in the work queue calls these functions.
  // Their work is in order with launches.

  virtual void zero(DeviceStream* stream, std::byte* data, size_t size);
  virtual void copy(DeviceStream* stream, std::byte* to, const std::byte* from, size_t size);
  /// `copy` has at most kMostAxes axes, none of which is empty.
  virtual void copy_strided(DeviceStream* stream, std::byte* to, const std::byte* from,
                            const StridedCopy& copy);
  virtual std::shared_ptr<Stopwatch> start_stopwatch(DeviceStream* /*stream*/) { return nullptr; }

  // Any thread may call these functions. The work that makes the source has been executed, and
  // nothing else accesses the destination. `after` is the fence of that work; null if it has none,
  // or if it is not known.
  /// Copies in `stream`.
  virtual void copy_from_host(DeviceStream* stream, std::byte* to, std::span<const std::byte> from);
  virtual void copy_to_host(std::span<std::byte> to, const std::byte* from, Fence* after);
  /// Host memory from and to which the device copies at full speed while the host continues. Throws
  /// ResourceExhausted if there is none left. `free_pinned` may be called when no copy from or to
  /// it is under way.
  virtual std::byte* allocate_pinned(size_t size);
  virtual void free_pinned(std::byte* data, size_t size) noexcept;
  /// Copies between pinned memory and memory of the device, which `stream` owns. The copy comes
  /// after `after` or, if that is null, after everything in `stream`. The fence tells when it is
  /// complete; null means that it is complete already.
  virtual std::shared_ptr<Fence> copy_pinned(DeviceStream* stream, std::byte* to,
                                             const std::byte* from, size_t size, bool to_host,
                                             Fence* after);
  /// Whether `data` is memory of this device. For a host device, all memory is.
  virtual bool owns(const void* /*data*/) const { return true; }
  /// Copies from another device. The copy may still be under way; later reads of `to` come after
  /// it.
  virtual void copy_from_device(std::byte* to, DeviceDriver& source, const std::byte* from,
                                size_t size, Fence* after);

 private:
  const Device device_;
  const std::string name_;
  WorkQueue queue_;
  Allocator allocator_;
  std::mutex uses_mutex_;
};

/// Throws kUnsupportedProgram: `device` cannot run `artifact`.
[[noreturn]] void fail_unsupported_format(const DeviceDriver& driver, const Artifact& artifact,
                                          std::string_view accepted);

}  // namespace braze
