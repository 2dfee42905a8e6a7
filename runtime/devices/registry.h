// registry.h — the devices of this process.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/devices/driver.h"

namespace braze {

namespace codes {
inline constexpr Code kNoSuchDevice{"no-such-device", ErrorKind::InvalidArgument,
                                    "There is no device of this name."};
inline constexpr Code kBadSetting{"bad-setting", ErrorKind::InvalidArgument,
                                  "A setting has a value that cannot be."};
}  // namespace codes

/// The one process-wide object of the runtime. Drivers are made at first use and live as long as
/// the process, as arrays in static storage may need them until its very end. Thread-safe.
class Registry {
 public:
  static constexpr int kMaxCpuDevices = 64;
  static constexpr int kMaxCpuThreads = 1024;

  static Registry& get();

  Device parse(std::string_view text);
  DeviceDriver& driver(const Device& device);
  std::vector<Device> devices();

  int cpu_device_count() const { return cpu_count_.load(std::memory_order_relaxed); }
  void set_cpu_device_count(int count);
  int cpu_threads() const { return cpu_threads_.load(std::memory_order_relaxed); }
  void set_cpu_threads(int count);

 private:
  Registry();

  std::atomic<int> cpu_count_;
  std::atomic<int> cpu_threads_;
  std::mutex mutex_;
  std::array<std::atomic<DeviceDriver*>, kMaxCpuDevices> cpus_{};  // owned by drivers_
  std::map<std::string, std::unique_ptr<DeviceDriver>> drivers_;
};

}  // namespace braze
