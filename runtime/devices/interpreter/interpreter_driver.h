// interpreter_driver.h — the device "interpreter": runs Graph IR and Tile IR on the host, the
// reference.
#pragma once

#include "runtime/devices/driver.h"

namespace braze {

/// Runs artifacts of the format "graph", whose launch's buffers are the graph's inputs, then its
/// outputs, each once and in order; or of the format "tile".
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
