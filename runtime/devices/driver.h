// driver.h — what a kind of device does for the rest of the runtime; one folder implements it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "braze/device.h"
#include "braze/error.h"
#include "ir/program/program.h"
#include "ir/program/verify.h"
#include "runtime/execution/stream.h"
#include "runtime/memory/allocator.h"

namespace braze {

namespace codes {
inline constexpr Code kUnsupportedProgram{
    "unsupported-program", ErrorKind::Unsupported,
    "The device cannot run code of this format or for this target."};
}  // namespace codes

/// Memory that the launches of a call share besides their buffers.
struct Scratch {
  Buffer memory;
  size_t size = 0;
};

/// One launch with everything evaluated.
struct LaunchArguments {
  uint32_t launch = 0;                 ///< which of Program::launches
  std::span<void* const> buffers;      ///< as Launch::buffers
  std::span<const uint64_t> sizes;     ///< bytes of each of `buffers`
  std::span<const int64_t> scalars;    ///< as Launch::scalars
  std::span<const int64_t> instances;  ///< as Launch::instances; at least one is not 0
  std::span<const int64_t> symbols;    ///< as Program::symbols
  bool serial = false;                 ///< too little work to share between threads
  double call_seconds = 0;             ///< estimate of the whole call; 0 if unknown
  const Scratch* scratch = nullptr;    ///< what LoadedProgram::reserve gave to the call
};

/// A program's code, ready on a device. Used by one thread at a time, but for `reserve`: the one
/// that executes the device's stream. It takes no memory from the device's allocator, which may be
/// waiting for the stream.
class LoadedProgram {
 public:
  virtual ~LoadedProgram() = default;
  virtual void launch(const LaunchArguments& arguments) = 0;
  /// Takes the memory that the launches of a call need besides their buffers; null if they need
  /// none. By any thread, before the call is submitted, so that ResourceExhausted comes before
  /// anything has happened. Several calls may get the same memory.
  virtual std::shared_ptr<const Scratch> reserve() { return nullptr; }
  /// Does one call, whose slots are at these addresses: has `launches` make its launches, fills and
  /// copies, or repeats what they were in an earlier call with the same addresses and symbols.
  virtual void call(std::span<void* const> /*slots*/, std::span<const int64_t> /*symbols*/,
                    const std::function<void()>& launches) {
    launches();
  }
};

/// Measures a stretch of a device's own queue. Thread-safe after it was stopped.
class Stopwatch {
 public:
  virtual ~Stopwatch() = default;
  virtual void stop() = 0;
  /// Blocks until the stretch is complete; 0 if it failed.
  virtual double seconds() = 0;
  /// When it began, of trace::now(), once `seconds` has returned; 0 if it failed, or if no timeline
  /// was being written then.
  virtual int64_t begin() = 0;
};

class DeviceDriver {
 public:
  DeviceDriver(Device device, std::unique_ptr<MemorySource> memory,
               Stream::Mode mode = Stream::Mode::Background);
  virtual ~DeviceDriver() = default;
  DeviceDriver(const DeviceDriver&) = delete;
  DeviceDriver& operator=(const DeviceDriver&) = delete;

  const Device& device() const { return device_; }
  const std::string& name() const { return name_; }
  Allocator& allocator() { return allocator_; }
  Stream& stream() { return stream_; }

  virtual const Target& target() = 0;
  /// How well code in `format` (see Artifact) for `target` suits this device: more is better,
  /// nullopt if it does not run here.
  virtual std::optional<int> suitability(const Target& target, std::string_view format) const = 0;
  /// Unsupported if this device cannot run the program, and why. Keeps the program alive.
  virtual std::unique_ptr<LoadedProgram> load(std::shared_ptr<const Program> program) = 0;

  /// Whether the device's memory is the host's.
  virtual bool has_host_memory() const { return true; }
  /// Blocks until everything submitted so far is complete, then rethrows the first error since the
  /// last call of this.
  virtual void synchronize() { stream_.synchronize(); }

  // By the thread that executes the stream, in order with launches.
  virtual void zero(std::byte* data, size_t size);
  virtual void copy(std::byte* to, const std::byte* from, size_t size);
  /// Behind everything before it; null if the device has no queue of its own.
  virtual std::shared_ptr<Fence> fence() { return nullptr; }
  virtual std::shared_ptr<Stopwatch> start_stopwatch() { return nullptr; }

  // By any thread. Work that makes the source has been executed, and nothing else touches the
  // destination. `after` is that work's fence; null if it has none, or is not known.
  virtual void copy_from_host(std::byte* to, std::span<const std::byte> from);
  virtual void copy_to_host(std::span<std::byte> to, const std::byte* from, Fence* after);
  /// From another device. The copy may still be under way; who reads `to` later is behind it.
  virtual void copy_from_device(std::byte* to, DeviceDriver& source, const std::byte* from,
                                size_t size, Fence* after);

 private:
  const Device device_;
  const std::string name_;
  Stream stream_;
  Allocator allocator_;
};

/// Throws kUnsupportedProgram: `device` has no way to run `artifact`.
[[noreturn]] void fail_unsupported_format(const DeviceDriver& driver, const Artifact& artifact,
                                          std::string_view accepted);

}  // namespace braze
