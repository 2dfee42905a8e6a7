// device.h — machines on which arrays live and programs run.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace braze {

struct Target;

enum class DeviceKind : uint8_t {
  Cpu,          ///< "cpu", "cpu:1": host memory, own worker threads
  Cuda,         ///< "cuda:0"
  Simulator,    ///< "sim:cpu", "sim:sm_90": runs Kernel IR on the host and checks every access
  Interpreter,  ///< "interpreter": runs Graph IR on the host, the reference
};

/// Names one device. A small value; immutable and shareable.
class Device {
 public:
  /// The first CPU.
  Device() = default;
  /// "cpu", "cpu:1", "cuda:0", "sim:cpu", "sim:sm_90", "interpreter". InvalidArgument, with the
  /// devices that exist, if there is no such device.
  Device(std::string_view text);                                // NOLINT: implicit on purpose
  Device(const char* text) : Device(std::string_view(text)) {}  // NOLINT

  DeviceKind kind() const { return kind_; }  ///< cpu, cuda, sim or interpreter
  int index() const { return index_; }       ///< 1 of "cuda:1"
  std::string name() const;                  ///< "cpu", "cuda:1"
  /// The machine that code for this device is generated for.
  const Target& target() const;

  friend bool operator==(const Device&, const Device&) = default;

 private:
  friend class Registry;
  Device(DeviceKind kind, int index, std::string_view machine)
      : kind_(kind), index_(index), machine_(machine) {}

  DeviceKind kind_ = DeviceKind::Cpu;
  int index_ = 0;
  std::string_view machine_ = "";  // simulators: which one; points to static text
};

std::ostream& operator<<(std::ostream& out, const Device& device);

/// Every device of this process. The number of CPU devices is set by BRAZE_CPU_DEVICES or
/// `set_cpu_device_count`.
std::vector<Device> devices();
int device_count(DeviceKind kind);
/// InvalidArgument unless 1 to 64; devices in use stay.
void set_cpu_device_count(int count);
/// Worker threads of each CPU device, the calling thread included; default: the hardware's.
void set_cpu_threads(int count);

/// The device of this thread's innermost DeviceGuard, else what `configure` said (config.h), else
/// the first GPU, else the first CPU.
Device default_device();

/// Makes `device` this thread's default for a scope.
class DeviceGuard {
 public:
  explicit DeviceGuard(Device device);  ///< until it goes out of scope
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
};

/// Waits until all work enqueued on the device is done. Rethrows the first error of that work.
void synchronize(const Device& device);

struct MemoryStats {
  uint64_t live_bytes = 0;    ///< held by arrays, running programs and the scratch of threads
  uint64_t cached_bytes = 0;  ///< freed, kept for reuse
  uint64_t peak_bytes = 0;    ///< the largest live_bytes so far
  uint64_t allocations = 0;   ///< requests served
  uint64_t cache_hits = 0;    ///< of those, from the cache
};

MemoryStats memory_stats(const Device& device);
/// Returns cached memory to the system; of a GPU's blocks, those of which no part is in use.
void empty_cache(const Device& device);
/// Requests beyond `bytes`, live and cached together, fail with ResourceExhausted; nullopt: no
/// limit. Initially BRAZE_MEMORY_LIMIT.
void set_memory_limit(const Device& device, std::optional<uint64_t> bytes);

}  // namespace braze
