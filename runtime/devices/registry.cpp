#include "runtime/devices/registry.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "ir/support/env.h"
#include "ir/support/fork.h"
#include "ir/support/text.h"
#include "runtime/devices/cpu/cpu_driver.h"
#include "runtime/devices/cpu/host_target.h"
#include "runtime/devices/cuda/cuda_driver.h"
#include "runtime/profile/device_trace.h"
#include "runtime/ranks/launch.h"

namespace braze {

constinit Registry::MakeDriver Registry::make_interpreting = nullptr;

std::span<const std::string_view> simulated_machines() {
  static constexpr std::string_view kMachines[] = {"cpu", "x86-64-v3", "x86-64-v4", "sm_80",
                                                   "sm_90"};
  return kMachines;
}

Registry& Registry::get() {
  static auto* registry = new Registry;
  return *registry;
}

Registry::Registry()
    : cpu_count_(static_cast<int>(read_env_int(kEnvCpuDevices, 1, kMaxCpuDevices).value_or(1))),
      cpu_threads_(
          config().threads
              ? *config().threads
              : static_cast<int>(
                    read_env_int(kEnvThreads, 1, kMaxCpuThreads).value_or(usable_cores()))) {
  connect_devices_to_trace();
}

namespace {

/// The number N, if `text` is "`prefix`N" and N is less than `count`.
std::optional<int> parse_index(std::string_view text, std::string_view prefix, int count) {
  if (!text.starts_with(prefix)) return std::nullopt;
  int index = -1;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data() + prefix.size(), end, index);
  if (result.ec != std::errc() || result.ptr != end || index < 0 || index >= count) {
    return std::nullopt;
  }
  return index;
}

int gpu_count() {
  const auto count = static_cast<int>(CudaSystem::get().gpus().size());
  return std::min(count, Registry::kMaxGpus);
}

}  // namespace

std::optional<Device> Registry::named(std::string_view text) {
  if (text == "cpu") return Device();
  if (text == "cuda") return Device(DeviceKind::Cuda, 0, "");
  if (const auto index = parse_index(text, "cpu:", kMaxCpuDevices))
    return Device(DeviceKind::Cpu, *index, "");
  if (const auto index = parse_index(text, "cuda:", kMaxGpus))
    return Device(DeviceKind::Cuda, *index, "");
  if (!make_interpreting) return std::nullopt;
  if (text == "interpreter") return Device(DeviceKind::Interpreter, 0, "");
  for (const std::string_view machine : simulated_machines())
    if (text.starts_with("sim:") && text.substr(4) == machine)
      return Device(DeviceKind::Simulator, 0, machine);
  return std::nullopt;
}

Device Registry::parse(std::string_view text) {
  const std::optional<Device> device = named(text);
  const bool is_cpu = device && device->kind() == DeviceKind::Cpu;
  const bool is_gpu = device && device->kind() == DeviceKind::Cuda;
  if (!device || (is_cpu && device->index() >= cpu_device_count()) ||
      (is_gpu && device->index() >= gpu_count()))
    fail_no_device(text);
  return *device;
}

void configure(Config config) {
  if (config.default_device && !Registry::named(*config.default_device))
    fail(codes::kNoSuchDevice,
         fmt::format("the default device of the configuration, {}, is not the name of a device",
                     quote(*config.default_device)),
         {.fix = fmt::format("use a name such as \"cpu\", \"cpu:1\", \"cuda:0\", \"interpreter\" "
                             "or \"sim:{}\", or none",
                             simulated_machines()[0])});
  set_config(std::move(config));
}

void Registry::fail_no_device(std::string_view text) {
  std::string reason, fix;
  const bool asks_for_gpus = !text.starts_with("cpu") && !text.starts_with("sim");
  if (text.starts_with("cuda") && gpu_count() == 0) {
    reason = fmt::format(": {}", CudaSystem::get().missing());
  }
  if (text.starts_with("cpu:"))
    fix = "make more CPU devices by set_cpu_device_count(n) or BRAZE_CPU_DEVICES=n";
  if (!make_interpreting && (text == "interpreter" || text.starts_with("sim:")))
    fix =
        "link libbraze into the program, or use `braze run`: libbraze-runtime has no devices that "
        "interpret code";
  fail(codes::kNoSuchDevice,
       fmt::format("there is no device {}{}; the devices are {}", quote(text), reason,
                   join(devices(asks_for_gpus), ", ", [](const Device& d) { return d.name(); })),
       {.location = {}, .node = "", .fix = std::move(fix)});
}

std::vector<Device> Registry::devices(bool with_gpus) {
  std::vector<Device> all;
  for (int i = 0; i < cpu_device_count(); ++i) all.push_back({DeviceKind::Cpu, i, ""});
  for (int i = 0; with_gpus && i < gpu_count(); ++i) all.push_back({DeviceKind::Cuda, i, ""});
  if (!make_interpreting) return all;
  for (const std::string_view machine : simulated_machines())
    all.push_back({DeviceKind::Simulator, 0, machine});
  all.push_back({DeviceKind::Interpreter, 0, ""});
  return all;
}

int Registry::count(DeviceKind kind) {
  if (kind == DeviceKind::Cuda) return gpu_count();
  const std::vector<Device> others = devices(/*with_gpus=*/false);
  return static_cast<int>(std::ranges::count(others, kind, &Device::kind));
}

Device Registry::first_choice() {
  if (config().default_device) {
    try {
      return parse(*config().default_device);
    } catch (const Error& error) {
      fail(error.code(), "the default device of the configuration: " + error.message(),
           {.fix = "give configure() the name of a device, or none"});
    }
  }
  std::optional<int> gpu = CudaSystem::get().first_usable();
  // If all processes of a host see all its GPUs, each process uses a different one.
  const Launched& how = launched();
  const bool shares = how.meeting != Launched::Meeting::Alone && how.local;
  if (gpu && shares && *how.local < gpu_count()) gpu = how.local;
  return gpu && *gpu < kMaxGpus ? Device(DeviceKind::Cuda, *gpu, "") : Device();
}

std::atomic<DeviceDriver*>* Registry::quick_slot(const Device& device) {
  const auto index = static_cast<size_t>(device.index());
  if (device.kind() == DeviceKind::Cpu) return &cpus_[index];
  if (device.kind() == DeviceKind::Cuda) return &gpus_[index];
  return nullptr;
}

DeviceDriver& Registry::driver(const Device& device) {
  refuse_if_forked();
  std::atomic<DeviceDriver*>* const quick = quick_slot(device);
  if (quick) {
    if (DeviceDriver* driver = quick->load(std::memory_order_acquire)) return *driver;
  }
  const std::lock_guard lock(mutex_);
  std::unique_ptr<DeviceDriver>& driver = drivers_[device.name()];
  if (!driver) {
    switch (device.kind()) {
      case DeviceKind::Cpu:
        driver = std::make_unique<CpuDriver>(device, cpu_threads_);
        break;
      case DeviceKind::Cuda:
        driver = std::make_unique<CudaDriver>(device, CudaSystem::get());
        break;
      case DeviceKind::Simulator:
      case DeviceKind::Interpreter:
        driver = make_interpreting(device);
        break;
    }
    if (quick) quick->store(driver.get(), std::memory_order_release);
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
