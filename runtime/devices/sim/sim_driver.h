// sim_driver.h — the devices "sim:...": run Kernel IR on the host and check every access.
#pragma once

#include <span>
#include <string_view>

#include "runtime/devices/driver.h"
#include "runtime/devices/sim/kernel_runner.h"

namespace braze {

/// The machines that can be simulated: "cpu" is the host's own target, so that its results are
/// those of the device "cpu"; the others are rows of the table.
std::span<const std::string_view> simulated_machines();

/// Runs artifacts of the format "kernel" by the interpreter that `make_runner` makes; without one,
/// loading a program is Unsupported.
class SimDriver : public DeviceDriver {
 public:
  explicit SimDriver(Device device, MakeKernelRunner make_runner = nullptr);
  const Target& target() override { return target_; }
  std::unique_ptr<LoadedProgram> load(std::shared_ptr<const Program> program) override;

 private:
  const Target target_;
  const MakeKernelRunner make_runner_;
};

}  // namespace braze
