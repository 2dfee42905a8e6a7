#include "runtime/devices/sim/sim_driver.h"

#include <optional>
#include <vector>

#include "ir/code/interpret.h"
#include "ir/code/text.h"
#include "ir/kernel/simulate.h"
#include "ir/kernel/verify.h"
#include "ir/program/text.h"
#include "ir/support/text.h"
#include "ir/tile/verify.h"
#include "runtime/devices/cpu/host_target.h"

namespace braze {

namespace {

constexpr std::string_view kKernel = "kernel", kTile = "tile";

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

// A kernel or tile program, sound and ready to be interpreted.
class SimulatedKernel {
 public:
  explicit SimulatedKernel(const Artifact& artifact) {
    if (artifact.format == kTile)
      load(parse_tile(artifact.code, artifact.kernel));
    else
      load(parse_kernel(artifact.code, artifact.kernel));
  }
  std::vector<Diagnostic> run(std::span<const std::span<std::byte>> memories,
                              std::span<const int64_t> scalars) {
    return simulator_ ? simulator_->run(memories, scalars) : interpreter_->run(memories, scalars);
  }

 private:
  template <class Code>
  void load(Code code) {
    fail_if_any(verify(code), fmt::format("the kernel @{}", code.name));
    code_ = std::make_unique<KernelCode>(std::move(code));
    if (is_gpu_kernel(*code_))
      simulator_.emplace(*code_);
    else
      interpreter_.emplace(*code_);
  }

  std::unique_ptr<const KernelCode> code_;
  std::optional<CodeInterpreter> interpreter_;  // for a CPU
  std::optional<Simulator> simulator_;          // for a GPU
};

class SimulatedKernels : public LoadedProgram {
 public:
  explicit SimulatedKernels(std::shared_ptr<const Program> program) : program_(std::move(program)) {
    for (const Artifact& artifact : program_->artifacts) {
      kernels_.push_back(std::make_unique<SimulatedKernel>(artifact));
    }
  }

  void launch(const LaunchArguments& arguments) override {
    std::vector<std::span<std::byte>> buffers;
    for (size_t i = 0; i < arguments.buffers.size(); ++i) {
      buffers.emplace_back(static_cast<std::byte*>(arguments.buffers[i]), arguments.sizes[i]);
    }
    const Launch& launch = program_->launches[arguments.launch];
    const auto findings = kernels_[launch.artifact]->run(buffers, arguments.scalars);
    if (!findings.empty()) fail_launch(launch, findings);
  }

 private:
  [[noreturn]] void fail_launch(const Launch& launch,
                                const std::vector<Diagnostic>& findings) const {
    const auto text = [](const Diagnostic& d) { return d.to_string(); };
    fail(codes::kSimulatedFault,
         fmt::format(
             "kernel @{} breaks {} rules:\n{}\nit computes {}", launch.name, findings.size(),
             join(findings, "\n", text),
             join(op_texts(*program_, launch), ", ", [](const std::string& op) { return op; })),
         {.location = findings.front().location, .node = launch.name, .fix = ""});
  }

  const std::shared_ptr<const Program> program_;
  std::vector<std::unique_ptr<SimulatedKernel>> kernels_;  // by artifact
};

}  // namespace

SimDriver::SimDriver(Device device)
    : DeviceDriver(device, std::make_unique<HostMemory>()), target_(simulated_target(name())) {}

std::unique_ptr<LoadedProgram> load_interpreted(const DeviceDriver& driver,
                                                std::shared_ptr<const Program> program) {
  for (const Artifact& artifact : program->artifacts) {
    if (artifact.format != kKernel && artifact.format != kTile) {
      fail_unsupported_format(driver, artifact, "\"kernel\"");
    }
  }
  return std::make_unique<SimulatedKernels>(std::move(program));
}

std::optional<int> SimDriver::suitability(const Target& target, std::string_view format) const {
  const bool runs = target.simulated && target.name == target_.name;
  return runs && (format == kKernel || format == kTile) ? std::optional(1) : std::nullopt;
}

std::unique_ptr<LoadedProgram> SimDriver::load(std::shared_ptr<const Program> program) {
  return load_interpreted(*this, std::move(program));
}

}  // namespace braze
