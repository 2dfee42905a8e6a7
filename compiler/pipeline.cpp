// pipeline.cpp — compile(): the steps from a Graph to a Program, in order.
#include "braze/compile.h"

#include <chrono>
#include <filesystem>
#include <fstream>

#include "braze/error.h"
#include "ir/graph/rewrite.h"
#include "ir/graph/text.h"
#include "ir/graph/verify.h"
#include "ir/program/program.h"
#include "ir/support/text.h"

namespace braze {

namespace codes {
inline constexpr Code kNoCodeGenerator{"no-code-generator", ErrorKind::Unsupported,
                                       "No code generator serves the target."};
}  // namespace codes

namespace {

/// Model bytes of a tensor.
Expr bytes_of(const TensorType& type) {
  return type.shape.numel() * Expr(static_cast<int64_t>(size_of(type.dtype)));
}

int count_ops(const Graph& graph) {
  const std::vector<bool> needed = needed_nodes(graph);
  int count = 0;
  for (size_t i = 0; i < graph.size(); ++i) {
    const Node& node = graph[NodeId(i)];
    count += needed[i] && !node.as<InputOp>() && !node.as<ConstantOp>();
  }
  return count;
}

/// A Program whose one launch runs the graph itself.
Program interpreter_program(const Graph& graph) {
  Program program;
  Launch launch;
  const std::vector<GraphOutput>& outputs = graph.outputs();
  for (uint32_t i = 0; i < graph.inputs().size(); ++i) {
    const Node& node = graph[graph.inputs()[i]];
    const std::string& name = node.as<InputOp>()->name;
    program.inputs.push_back({name, node.type});
    launch.buffers.push_back(static_cast<uint32_t>(program.slots.size()));
    program.slots.push_back({Slot::Kind::Input, i, node.type, Expr(0), name});
    launch.bytes_read += bytes_of(node.type);
  }
  for (uint32_t i = 0; i < outputs.size(); ++i) {
    const TensorType& type = graph[outputs[i].node].type;
    const auto slot = static_cast<uint32_t>(program.slots.size());
    program.outputs.push_back({outputs[i].name, type, slot, outputs[i].updates});
    launch.buffers.push_back(slot);
    program.slots.push_back({Slot::Kind::Output, i, type, Expr(0), outputs[i].name});
    launch.bytes_written += bytes_of(type);
  }
  program.symbols = graph.symbols();
  launch.scalars = program.symbols;
  launch.name = graph.name();
  launch.schedule = "interpreted";
  program.artifacts.push_back({"graph", graph.name(), to_text(graph, {.locations = true}), {}});
  program.launches.push_back(std::move(launch));
  program.report = fmt::format("{}: {} ops, interpreted one by one; nothing is fused\n",
                               graph.name(), count_ops(graph));
  return program;
}

void dump(const std::string& folder, const std::string& name, const std::string& text) {
  if (folder.empty()) return;
  std::filesystem::create_directories(folder);
  std::ofstream(std::filesystem::path(folder) / name) << text;
}

}  // namespace

Program compile(const Graph& graph, const Target& target, const CompileOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  fail_if_any(verify(graph), fmt::format("the graph {}", quote(graph.name())));
  dump(options.dump_folder, "00-graph.braze", to_text(graph));
  if (target.kind != TargetKind::Interpreter)
    fail(codes::kNoCodeGenerator, fmt::format("nothing generates code for {} yet", target.name),
         {.fix = "use the device \"interpreter\""});
  Program program = interpreter_program(graph);
  program.name = graph.name();
  program.target = target;
  program.ops_before_fusion = count_ops(graph);
  program.compile_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return program;
}

}  // namespace braze
