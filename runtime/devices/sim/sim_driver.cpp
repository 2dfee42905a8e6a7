#include "runtime/devices/sim/sim_driver.h"

#include "ir/support/text.h"
#include "runtime/devices/cpu/host_target.h"

namespace braze {

namespace {

constexpr std::string_view kMachines[] = {"cpu", "x86-64-v3", "x86-64-v4"};

Target simulated_target(std::string_view device_name) {
  const std::string_view machine = device_name.substr(std::string_view("sim:").size());
  if (machine != "cpu") return *find_target(device_name);
  Target target;
  try {
    target = host_target(usable_cores());
  } catch (const Error&) {
    target = *find_target("x86-64-v3");  // a host that cannot run generated code can simulate it
  }
  target.simulated = true;
  return target;
}

}  // namespace

std::span<const std::string_view> simulated_machines() { return kMachines; }

SimDriver::SimDriver(Device device)
    : DeviceDriver(device, std::make_unique<HostMemory>()), target_(simulated_target(name())) {}

std::unique_ptr<LoadedProgram> SimDriver::load(std::shared_ptr<const Program> program) {
  fail(codes::kUnsupportedProgram,
       fmt::format("device {} cannot run program @{} yet: Kernel IR has no interpreter", name(),
                   program->name),
       {.location = {}, .node = "", .fix = "use the device \"interpreter\""});
}

}  // namespace braze
