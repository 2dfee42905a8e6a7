#include "ir/program/graph_program.h"

#include "ir/graph/text.h"

namespace braze {

Program graph_program(const Graph& graph) {
  Program program;
  program.name = graph.name();
  program.target = *find_target("interpreter");
  program.symbols = graph.symbols();

  Launch launch;
  launch.name = graph.name();
  const auto bytes = [](const TensorType& type) {
    return type.shape.numel() * static_cast<int64_t>(size_of(type.dtype));
  };
  const auto add_slot = [&](Slot::Kind kind, size_t index, const TensorType& type,
                            const std::string& label) {
    const auto slot = static_cast<uint32_t>(program.slots.size());
    program.slots.push_back({kind, static_cast<uint32_t>(index), type, {}, label});
    launch.buffers.push_back(slot);
    return slot;
  };
  for (const NodeId id : graph.inputs()) {
    const std::string& name = graph[id].as<InputOp>()->name;
    const TensorType& type = graph[id].type;
    add_slot(Slot::Kind::Input, program.inputs.size(), type, name);
    program.inputs.push_back({name, type});
    launch.bytes_read += bytes(type);
  }
  for (const GraphOutput& output : graph.outputs()) {
    const TensorType& type = graph[output.node].type;
    const uint32_t slot = add_slot(Slot::Kind::Output, program.outputs.size(), type, output.name);
    program.outputs.push_back({output.name, type, slot, output.updates});
    launch.bytes_written += bytes(type);
  }
  for (size_t i = 0; i < graph.size(); ++i) {
    if (!graph[NodeId(i)].as<InputOp>()) ++program.ops_before_fusion;
  }
  program.artifacts.push_back({.format = "graph", .kernel = graph.name(), .code = to_text(graph)});
  program.launches.push_back(std::move(launch));
  return program;
}

}  // namespace braze
