// devices.cpp — braze devices: where programs can run.
#include <fmt/format.h>

#include "braze/device.h"
#include "ir/support/text.h"
#include "ir/target/target.h"
#include "runtime/devices/cuda/cuda_system.h"
#include "tools/braze/arguments.h"
#include "tools/braze/command.h"
#include "tools/braze/links.h"
#include "tools/braze/report.h"

namespace braze::tool {

namespace {

std::string kind_text(const Device& device) {
  switch (device.kind()) {
    case DeviceKind::Cpu:
      return "this processor";
    case DeviceKind::Cuda: {
      const GpuFacts& gpu = CudaSystem::get().gpus()[static_cast<size_t>(device.index())];
      return fmt::format("{}, {}", gpu.name, bytes_text(gpu.memory_bytes));
    }
    case DeviceKind::Simulator:
      return "simulator";
    case DeviceKind::Interpreter:
      return "reference";
  }
  return "";
}

// A device that this host cannot use says why.
std::string target_text(const Device& device) {
  try {
    const Target& target = device.target();
    switch (target.kind) {
      case TargetKind::Interpreter:
        return target.name;
      case TargetKind::Cpu:
        return fmt::format("{}, {} cores", target.name, target.cores);
      case TargetKind::Gpu:
        return fmt::format("{}, {} multiprocessors", target.name, target.cores);
    }
    return "";
  } catch (const Error& error) {
    return error.message();
  }
}

Exit list_devices(bool as_json) {
  std::vector<std::vector<std::string>> rows = {{"device", "description", "target"}};
  std::vector<std::string> items;
  for (const Device& device : devices()) {
    const std::string kind = kind_text(device);
    rows.push_back({device.name(), kind, target_text(device)});
    items.push_back(json::object({{"name", json::string(device.name())},
                                  {"kind", json::string(kind)},
                                  {"target", json::string(target_text(device))},
                                  {"default", json::boolean(device == default_device())}}));
  }
  const std::string& no_gpu = CudaSystem::get().missing();
  const std::string links = gpu_links_text();
  if (as_json) {
    json::print({{"devices", json::array(items)},
                 {"links", links.empty() ? "null" : json::string(links)},
                 {"nccl", no_gpu.empty() ? json::string(nccl_text()) : "null"},
                 {"no_gpu", no_gpu.empty() ? "null" : json::string(no_gpu)}});
    return Exit::Ok;
  }
  fmt::print("{}\n  the default is {}\n", table(rows), default_device().name());
  if (!links.empty()) fmt::print("  links: {}\n", links);
  if (no_gpu.empty())
    fmt::print("  NCCL: {}\n", nccl_text());
  else
    fmt::print("  no GPUs: {}\n", no_gpu);
  return Exit::Ok;
}

std::function<Exit()> add(Arguments& arguments) {
  auto as_json = std::make_shared<bool>(false);
  arguments.add_flag("--json", *as_json, "Print JSON");
  return [as_json] { return list_devices(*as_json); };
}

}  // namespace

const Command kDevices = {"devices", "Lists the devices of this machine.",
                          "  braze devices\n"
                          "  BRAZE_CPU_DEVICES=2 braze devices\n",
                          add};

}  // namespace braze::tool
