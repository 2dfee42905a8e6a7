// interpreter_driver.h — the device "interpreter", which runs Graph IR and Tile IR on the host. It
// is the reference for all other devices.
#pragma once

#include "runtime/devices/driver.h"

namespace braze {

/// Runs artifacts of the formats "graph" and "tile". The launch of a graph has as buffers the
/// graph's inputs and then its outputs, each once and in order.
class InterpreterDriver : public DeviceDriver {
 public:
  explicit InterpreterDriver(Device device);
  const Target& target() override { return target_; }
  std::optional<int> suitability(const Target& target, std::string_view format) const override;
  std::unique_ptr<LoadedProgram> load(std::shared_ptr<const Program> program) override;

 private:
  const Target target_;
};

}  // namespace braze
