// sim_driver.h — the devices "sim:...", which run Kernel IR on the host and check every access.
#pragma once

#include "runtime/devices/driver.h"

namespace braze {

namespace codes {
inline constexpr Code kSimulatedFault{"simulated-fault", ErrorKind::Device,
                                      "The simulator found a kernel that breaks a rule."};
}  // namespace codes

/// Loads artifacts of the formats "kernel" and "tile" for their interpreters. A launch that breaks
/// a rule of the language fails with all findings, which name the kernel, the statement and the ops
/// that were fused into it.
std::unique_ptr<LoadedProgram> load_interpreted(const DeviceDriver& driver,
                                                std::shared_ptr<const Program> program);

/// Runs the programs that load_interpreted loads.
class SimDriver : public DeviceDriver {
 public:
  explicit SimDriver(Device device);
  const Target& target() override { return target_; }
  std::optional<int> suitability(const Target& target, std::string_view format) const override;
  std::unique_ptr<LoadedProgram> load(std::shared_ptr<const Program> program) override;

 private:
  const Target target_;
};

}  // namespace braze
