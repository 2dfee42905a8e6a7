#include "runtime/devices/sim/sim_driver.h"

#include <vector>

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

class SimulatedKernels : public LoadedProgram {
 public:
  SimulatedKernels(std::shared_ptr<const Program> program, MakeKernelRunner make_runner)
      : program_(std::move(program)) {
    for (const Artifact& artifact : program_->artifacts) {
      runners_.push_back(make_runner(artifact.code, artifact.kernel));
    }
  }

  void launch(const LaunchArguments& arguments) override {
    std::vector<std::span<std::byte>> buffers;
    for (size_t i = 0; i < arguments.buffers.size(); ++i) {
      buffers.emplace_back(static_cast<std::byte*>(arguments.buffers[i]), arguments.sizes[i]);
    }
    const uint32_t artifact = program_->launches[arguments.launch].artifact;
    runners_[artifact]->run(buffers, arguments.scalars, arguments.instances);
  }

 private:
  const std::shared_ptr<const Program> program_;
  std::vector<std::unique_ptr<KernelRunner>> runners_;  // by artifact
};

}  // namespace

std::span<const std::string_view> simulated_machines() { return kMachines; }

SimDriver::SimDriver(Device device, MakeKernelRunner make_runner)
    : DeviceDriver(device, std::make_unique<HostMemory>()),
      target_(simulated_target(name())),
      make_runner_(make_runner) {}

std::unique_ptr<LoadedProgram> SimDriver::load(std::shared_ptr<const Program> program) {
  if (!make_runner_) {
    fail(codes::kUnsupportedProgram,
         fmt::format("device {} cannot run program @{} yet: Kernel IR has no interpreter", name(),
                     program->name),
         {.location = {}, .node = "", .fix = "use the device \"interpreter\""});
  }
  for (const Artifact& artifact : program->artifacts) {
    if (artifact.format != "kernel") fail_unsupported_format(*this, artifact, "\"kernel\"");
  }
  return std::make_unique<SimulatedKernels>(std::move(program), make_runner_);
}

}  // namespace braze
