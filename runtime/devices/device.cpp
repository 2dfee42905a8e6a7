#include "braze/device.h"

#include <ostream>

#include "runtime/devices/registry.h"

namespace braze {

namespace {

thread_local std::vector<Device> guards;

}  // namespace

Device::Device(std::string_view text) : Device(Registry::get().parse(text)) {}

std::string Device::name() const {
  switch (kind_) {
    case DeviceKind::Cpu:
      return index_ == 0 ? "cpu" : "cpu:" + std::to_string(index_);
    case DeviceKind::Cuda:
      return "cuda:" + std::to_string(index_);
    case DeviceKind::Simulator:
      return "sim:" + std::string(machine_);
    case DeviceKind::Interpreter:
      return "interpreter";
  }
  return "";
}

const Target& Device::target() const { return Registry::get().driver(*this).target(); }

std::ostream& operator<<(std::ostream& out, const Device& device) { return out << device.name(); }

std::vector<Device> devices() { return Registry::get().devices(); }

int device_count(DeviceKind kind) { return Registry::get().count(kind); }

void set_cpu_device_count(int count) { Registry::get().set_cpu_device_count(count); }

void set_cpu_threads(int count) { Registry::get().set_cpu_threads(count); }

Device default_device() { return guards.empty() ? Registry::get().first_choice() : guards.back(); }

DeviceGuard::DeviceGuard(Device device) { guards.push_back(device); }

DeviceGuard::~DeviceGuard() { guards.pop_back(); }

void synchronize(const Device& device) { Registry::get().driver(device).synchronize(); }

MemoryStats memory_stats(const Device& device) {
  return Registry::get().driver(device).allocator().stats();
}

void empty_cache(const Device& device) { Registry::get().driver(device).allocator().empty_cache(); }

void set_memory_limit(const Device& device, std::optional<uint64_t> bytes) {
  Registry::get().driver(device).allocator().set_limit(bytes);
}

}  // namespace braze
