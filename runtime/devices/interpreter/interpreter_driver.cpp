#include "runtime/devices/interpreter/interpreter_driver.h"

#include <cstring>
#include <memory>
#include <vector>

#include "ir/graph/custom_calls.h"
#include "ir/graph/graph.h"
#include "ir/graph/interpret.h"
#include "ir/graph/origins.h"
#include "ir/graph/text.h"
#include "ir/support/text.h"
#include "runtime/devices/registry.h"
#include "runtime/devices/sim/sim_driver.h"

namespace braze {

namespace {

class LoadedGraphs : public LoadedProgram {
 public:
  LoadedGraphs(const InterpreterDriver& driver, std::shared_ptr<const Program> program)
      : program_(std::move(program)) {
    for (const Artifact& artifact : program_->artifacts) {
      if (artifact.format != "graph") fail_unsupported_format(driver, artifact, "\"graph\"");
      graphs_.push_back(
          with_locations(parse_graph(artifact.code, artifact.kernel), program_->locations));
    }
    for (const Graph& graph : graphs_)
      for (size_t i = 0; i < graph.size(); ++i)
        if (const Node& node = graph[NodeId(i)]; const auto* call = node.as<CustomCallOp>())
          need_custom_function(*call, CustomMemory::Host, driver.name(),
                               {node.location, node.label.empty() ? call->target : node.label, {}});
    for (const Launch& launch : program_->launches) {
      const Graph& graph = graphs_[launch.artifact];
      if (launch.buffers.size() != graph.inputs().size() + graph.outputs().size()) {
        fail(codes::kMalformedProgram,
             fmt::format("program @{}: graph @{} has {} inputs and {} outputs, but {} buffers",
                         program_->name, graph.name(), graph.inputs().size(),
                         graph.outputs().size(), launch.buffers.size()));
      }
    }
  }

  void launch(const LaunchArguments& arguments) override {
    const Launch& launch = program_->launches[arguments.launch];
    const Graph& graph = graphs_[launch.artifact];
    const size_t input_count = graph.inputs().size();
    const auto value_of = [&](std::string_view symbol) -> int64_t {
      for (size_t i = 0; i < program_->symbols.size(); ++i) {
        if (program_->symbols[i].symbol_name() == symbol) return arguments.symbols[i];
      }
      fail(codes::kMalformedProgram,
           fmt::format("program @{} gives no value for {}", program_->name, symbol));
    };
    std::vector<HostTensor> inputs;
    inputs.reserve(input_count);
    for (size_t i = 0; i < input_count; ++i) {
      const TensorType& type = program_->slots[launch.buffers[i]].type;
      HostTensor& input = inputs.emplace_back(type.dtype, type.shape.evaluate(value_of));
      if (input.size_bytes() > 0) {
        std::memcpy(input.data(), arguments.buffers[i], input.size_bytes());
      }
    }
    const std::vector<HostTensor> outputs = interpret(graph, inputs);
    for (size_t i = 0; i < outputs.size(); ++i) {
      const size_t buffer = input_count + i;
      const TensorType& type = program_->slots[launch.buffers[buffer]].type;
      BRAZE_CHECK(
          outputs[i].dtype() == type.dtype && outputs[i].shape() == type.shape.evaluate(value_of),
          "the graph's outputs have the types of their slots");
      if (outputs[i].size_bytes() > 0) {
        std::memcpy(arguments.buffers[buffer], outputs[i].data(), outputs[i].size_bytes());
      }
    }
  }

 private:
  const std::shared_ptr<const Program> program_;
  std::vector<Graph> graphs_;  // by artifact
};

}  // namespace

InterpreterDriver::InterpreterDriver(Device device)
    : DeviceDriver(device, std::make_unique<HostMemory>()), target_(*find_target("interpreter")) {}

std::optional<int> InterpreterDriver::suitability(const Target& /*target*/,
                                                  std::string_view format) const {
  return format == "graph" || format == "tile" ? std::optional(1) : std::nullopt;
}

std::unique_ptr<LoadedProgram> InterpreterDriver::load(std::shared_ptr<const Program> program) {
  const auto& artifacts = program->artifacts;
  if (!artifacts.empty() && artifacts.front().format == "tile")
    return load_interpreted(*this, std::move(program));
  return std::make_unique<LoadedGraphs>(*this, std::move(program));
}

namespace {

// Set when libbraze is loaded.
[[maybe_unused]] const bool kInterprets = [] {
  Registry::make_interpreting = [](const Device& device) -> std::unique_ptr<DeviceDriver> {
    if (device.kind() == DeviceKind::Interpreter)
      return std::make_unique<InterpreterDriver>(device);
    return std::make_unique<SimDriver>(device);
  };
  return true;
}();

}  // namespace
}  // namespace braze
