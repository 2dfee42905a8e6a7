// registry.h — the devices of this process.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/support/config.h"
#include "runtime/devices/driver.h"

namespace braze {

namespace codes {
inline constexpr Code kNoSuchDevice{"no-such-device", ErrorKind::InvalidArgument,
                                    "There is no device of this name."};
}  // namespace codes

/// The machines that can be simulated. "cpu" is the host's own target, so its results are those of
/// the device "cpu". The others are rows of the table of targets.
std::span<const std::string_view> simulated_machines();

/// The devices of the process; the runtime has no other global object of this kind. Drivers are
/// made at first use. They live as long as the process, because arrays in static storage may need
/// them until it ends. Thread-safe.
class Registry {
 public:
  static constexpr int kMaxCpuDevices = 64;
  static constexpr int kMaxCpuThreads = 1024;
  static constexpr int kMaxGpus = 64;

  static Registry& get();

  /// Makes the driver of a device that interprets code. libbraze sets it when it is loaded: a
  /// program that has the runtime alone has no such devices.
  using MakeDriver = std::unique_ptr<DeviceDriver> (*)(const Device& device);
  static MakeDriver make_interpreting;

  /// The device with this name, whether this process has it or not. It opens no driver.
  static std::optional<Device> named(std::string_view text);
  Device parse(std::string_view text);
  DeviceDriver& driver(const Device& device);
  /// All devices. GPUs are included only if they are requested, because looking for them opens
  /// CUDA's driver.
  std::vector<Device> devices(bool with_gpus = true);
  int count(DeviceKind kind);
  /// Calls `visit(DeviceDriver&)` for every device in use.
  template <class Visit>
  void for_each_driver(Visit&& visit) {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, driver] : drivers_)
      if (driver) visit(*driver);
  }
  /// The device that `configure` named; or the first GPU for which code can be generated; or the
  /// first CPU.
  Device first_choice();

  int cpu_device_count() const { return cpu_count_.load(std::memory_order_relaxed); }
  void set_cpu_device_count(int count);
  int cpu_threads() const { return cpu_threads_.load(std::memory_order_relaxed); }
  void set_cpu_threads(int count);

 private:
  Registry();
  std::atomic<DeviceDriver*>* quick_slot(const Device& device);
  [[noreturn]] void fail_no_device(std::string_view text);

  std::atomic<int> cpu_count_;
  std::atomic<int> cpu_threads_;
  std::mutex mutex_;
  // These are found without a lock; drivers_ owns them.
  std::array<std::atomic<DeviceDriver*>, kMaxCpuDevices> cpus_{};
  std::array<std::atomic<DeviceDriver*>, kMaxGpus> gpus_{};
  std::map<std::string, std::unique_ptr<DeviceDriver>> drivers_;
};

}  // namespace braze
