#include "runtime/devices/registry.h"

#include <charconv>

#include "ir/support/env.h"
#include "ir/support/text.h"
#include "runtime/devices/cpu/cpu_driver.h"
#include "runtime/devices/cpu/host_target.h"
#include "runtime/devices/interpreter/interpreter_driver.h"
#include "runtime/devices/sim/sim_driver.h"

namespace braze {

Registry& Registry::get() {
  static auto* registry = new Registry;
  return *registry;
}

Registry::Registry()
    : cpu_count_(static_cast<int>(read_env_int(kEnvCpuDevices, 1, kMaxCpuDevices).value_or(1))),
      cpu_threads_(
          static_cast<int>(read_env_int(kEnvThreads, 1, kMaxCpuThreads).value_or(usable_cores()))) {
}

Device Registry::parse(std::string_view text) {
  if (text == "cpu") return {};
  if (text == "interpreter") return {DeviceKind::Interpreter, 0, ""};
  if (constexpr std::string_view kCpu = "cpu:"; text.starts_with(kCpu)) {
    int index = -1;
    const char* end = text.data() + text.size();
    const auto result = std::from_chars(text.data() + kCpu.size(), end, index);
    if (result.ec == std::errc() && result.ptr == end && index >= 0 && index < cpu_device_count()) {
      return {DeviceKind::Cpu, index, ""};
    }
  }
  for (const std::string_view machine : simulated_machines()) {
    if (text.starts_with("sim:") && text.substr(4) == machine) {
      return {DeviceKind::Simulator, 0, machine};
    }
  }
  fail(
      codes::kNoSuchDevice,
      fmt::format("there is no device {}; the devices are {}", quote(text),
                  join(devices(), ", ", [](const Device& d) { return d.name(); })),
      {.location = {},
       .node = "",
       .fix = text.starts_with("cpu:") ? "set_cpu_device_count(n) or BRAZE_CPU_DEVICES=n makes more"
                                       : ""});
}

std::vector<Device> Registry::devices() {
  std::vector<Device> all;
  for (int i = 0; i < cpu_device_count(); ++i) all.push_back({DeviceKind::Cpu, i, ""});
  for (const std::string_view machine : simulated_machines()) {
    all.push_back({DeviceKind::Simulator, 0, machine});
  }
  all.push_back({DeviceKind::Interpreter, 0, ""});
  return all;
}

DeviceDriver& Registry::driver(const Device& device) {
  if (device.kind() == DeviceKind::Cpu) {
    if (auto* driver = cpus_[static_cast<size_t>(device.index())].load(std::memory_order_acquire)) {
      return *driver;
    }
  }
  const std::lock_guard lock(mutex_);
  std::unique_ptr<DeviceDriver>& driver = drivers_[device.name()];
  if (!driver) {
    switch (device.kind()) {
      case DeviceKind::Cpu:
        driver = std::make_unique<CpuDriver>(device, cpu_threads_);
        cpus_[static_cast<size_t>(device.index())].store(driver.get(), std::memory_order_release);
        break;
      case DeviceKind::Simulator:
        driver = std::make_unique<SimDriver>(device);
        break;
      case DeviceKind::Interpreter:
        driver = std::make_unique<InterpreterDriver>(device);
        break;
      case DeviceKind::Cuda:
        fail(codes::kNoSuchDevice, fmt::format("there is no device {}", device.name()));
    }
  }
  return *driver;
}

void Registry::set_cpu_device_count(int count) {
  if (count < 1 || count > kMaxCpuDevices) {
    fail(codes::kBadSetting, fmt::format("the number of CPU devices must be from 1 to {}, not {}",
                                         kMaxCpuDevices, count));
  }
  cpu_count_ = count;
}

void Registry::set_cpu_threads(int count) {
  if (count < 1 || count > kMaxCpuThreads) {
    fail(codes::kBadSetting, fmt::format("the number of CPU threads must be from 1 to {}, not {}",
                                         kMaxCpuThreads, count));
  }
  cpu_threads_ = count;
}

}  // namespace braze
