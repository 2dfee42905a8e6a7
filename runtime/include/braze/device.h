// device.h — devices: the machines on which arrays live and programs run.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace braze {

struct Target;

/// The kind of machine that a device is.
enum class DeviceKind : uint8_t {
  Cpu,          ///< "cpu", "cpu:1": host memory, with worker threads of its own
  Cuda,         ///< "cuda:0"
  Simulator,    ///< "sim:cpu", "sim:sm_90": runs Kernel IR on the host and checks every access
  Interpreter,  ///< "interpreter": runs Graph IR on the host; the reference
};

/// The name of one device. A small immutable value.
class Device {
 public:
  /// The first CPU.
  Device() = default;
  /// "cpu", "cpu:1", "cuda:0", "sim:cpu", "sim:sm_90" or "interpreter". If there is no such device,
  /// InvalidArgument lists the devices that exist.
  Device(std::string_view text);  // NOLINT: implicit on purpose
  /// The same for a C string.
  Device(const char* text) : Device(std::string_view(text)) {}  // NOLINT

  DeviceKind kind() const { return kind_; }  ///< the kind of machine
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

/// Prints the name, such as "cuda:1".
std::ostream& operator<<(std::ostream& out, const Device& device);

/// Every device of this process. BRAZE_CPU_DEVICES or `set_cpu_device_count` sets the number of CPU
/// devices.
std::vector<Device> devices();
/// The number of devices of a kind; 0 if its driver or machine is missing.
int device_count(DeviceKind kind);
/// Sets the number of CPU devices, from 1 to 64, else InvalidArgument. Devices in use remain.
void set_cpu_device_count(int count);
/// Sets the number of worker threads of each CPU device, including the calling thread. The default
/// is that of the hardware.
void set_cpu_threads(int count);

/// The device of this thread's innermost DeviceGuard. Without one, the device that `configure` set
/// (config.h), or the first GPU, or the first CPU.
Device default_device();

/// Makes a device this thread's default, for a scope.
class DeviceGuard {
 public:
  explicit DeviceGuard(Device device);  ///< until it goes out of scope
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
};

/// Waits until all work that was submitted to the device is complete. Throws the first error of
/// that work.
void synchronize(const Device& device);

/// The memory of a device's allocator, in bytes.
struct MemoryStats {
  uint64_t live_bytes = 0;    ///< used by arrays, running programs and the scratch of threads
  uint64_t cached_bytes = 0;  ///< freed and kept for reuse
  uint64_t peak_bytes = 0;    ///< the largest live_bytes so far
  uint64_t allocations = 0;   ///< the number of requests that were served
  uint64_t cache_hits = 0;    ///< how many of them were served from the cache
};

/// The state of the device's allocator.
MemoryStats memory_stats(const Device& device);
/// Returns cached memory to the system. On a GPU, these are the blocks of which no part is in use.
void empty_cache(const Device& device);
/// Limits the sum of live and cached memory to `bytes`; nullopt means no limit. Requests beyond the
/// limit fail with ResourceExhausted. The initial limit is BRAZE_MEMORY_LIMIT.
void set_memory_limit(const Device& device, std::optional<uint64_t> bytes);

}  // namespace braze
