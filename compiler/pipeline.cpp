// pipeline.cpp — compile(): the steps from a Graph to a Program, in order.
#include "braze/compile.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "braze/error.h"
#include "compiler/codegen/code_generator.h"
#include "compiler/fusion/partition.h"
#include "compiler/lowering/lower.h"
#include "compiler/passes/expand.h"
#include "compiler/passes/unscatter.h"
#include "compiler/planning/plan.h"
#include "compiler/tiling/tile.h"
#include "ir/code/text.h"
#include "ir/graph/rewrite.h"
#include "ir/graph/text.h"
#include "ir/graph/verify.h"
#include "ir/program/program.h"
#include "ir/support/env.h"
#include "ir/support/hash.h"
#include "ir/support/text.h"

namespace braze {

namespace {

/// A function from Graph to Graph, in the order in which they run.
struct Pass {
  std::string_view name;
  Graph (*run)(const Graph&);
  std::string_view purpose;
};

constexpr Pass kPasses[] = {
    {"unscatter", unscatter, "scatter_add becomes a sum over its updates"},
    {"expand", expand, "formula rows become machine and math rows"},
};

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

// Writes phases to the dump folder, numbered in order.
class Dump {
 public:
  explicit Dump(std::string folder) : folder_(std::move(folder)) {
    if (!folder_.empty()) std::filesystem::create_directories(folder_);
  }
  /// `value` as text, if anybody wants it.
  template <class... Values>
  void write(std::string_view name, const Values&... values) {
    if (folder_.empty()) return;
    std::ofstream(std::filesystem::path(folder_) / fmt::format("{:02}-{}", number_++, name)) << to_text(values...);
  }

 private:
  std::string folder_;
  int number_ = 0;
};

void check_after(const Graph& graph, std::string_view pass) {
  const std::vector<Diagnostic> findings = verify(graph);
  if (findings.empty()) return;
  fail(braze::codes::kInternal, fmt::format("pass {} left a graph with {} findings: {}", pass, findings.size(), findings.front().to_string()),
       {.fix = "please report this"});
}

Graph run_passes(Graph graph, Dump& dump) {
  for (const Pass& pass : kPasses) {
    graph = pass.run(graph);
    check_after(graph, pass.name);
    dump.write(std::string(pass.name) + ".braze", graph);
  }
  return graph;
}

// Calls `work(i)` for all i below `count` on up to `threads` threads; rethrows the first error.
void parallel_for(size_t count, unsigned threads, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next = 0;
  std::exception_ptr error;
  std::mutex mutex;
  const auto drain = [&] {
    for (size_t i; (i = next++) < count;) {
      try {
        work(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
        next = count;
      }
    }
  };
  std::vector<std::jthread> helpers;
  for (unsigned t = 1; t < std::min<size_t>(threads, count); ++t) helpers.emplace_back(drain);
  drain();
  helpers.clear();
  if (error) std::rethrow_exception(error);
}

std::optional<Schedule> given_schedule(const CompileOptions& options, const std::string& kernel) {
  const auto found = options.schedules.find(kernel);
  if (found == options.schedules.end()) return std::nullopt;
  return parse_schedule(found->second);
}

Artifact generate(const Kernel& kernel, const Target& target) {
  if (target.simulated) return {"kernel", kernel.name, to_text(kernel), {}};
  return generate_image(kernel, target);
}

// Names that no two kernels of a program share.
std::vector<std::string> kernel_names(const Graph& graph, const std::vector<Fusion>& fusions) {
  std::vector<std::string> names;
  std::map<std::string, int> used;
  for (const Fusion& fusion : fusions) {
    std::string name = kernel_name(graph, fusion);
    if (const int n = used[name]++) name += fmt::format("_{}", n);
    names.push_back(std::move(name));
  }
  return names;
}

Program compiled_program(const Graph& source, const Target& target, const CompileOptions& options, Dump& dump) {
  const Graph graph = run_passes(source, dump);
  const LoopForms forms(graph);
  const Partition parts = partition(forms, target, {options.fuse});
  dump.write("fusion.txt", graph, parts);
  const std::vector<std::string> names = kernel_names(graph, parts.fusions);
  std::vector<PlacedFusion> placed;
  for (const Fusion& fusion : parts.fusions) placed.push_back({fusion, tiling_space(forms, fusion)});
  const Updates updates = decide_updates(forms, placed);
  std::vector<CompiledFusion> compiled(placed.size());
  for (size_t i = 0; i < compiled.size(); ++i) {
    CompiledFusion& out = compiled[i];
    static_cast<PlacedFusion&>(out) = placed[i];
    TiledKernel tiled = tile({forms, out.fusion, target, names[i], updates.aliases[i]}, out.space, given_schedule(options, names[i]));
    out.parameters = std::move(tiled.parameters);
    dump.write(names[i] + ".tile.braze", tiled.program);
    out.kernel = lower(tiled.program, target);
    dump.write(names[i] + ".kernel.braze", out.kernel);
  }
  parallel_for(compiled.size(), std::max(1u, std::thread::hardware_concurrency()),
               [&](size_t i) { compiled[i].artifact = generate(compiled[i].kernel, target); });
  Program program = plan(forms, compiled, updates, target);
  program.report = to_text(graph, parts);
  dump.write("program.txt", program);
  return program;
}

// The graph in a file of its own, and the command that compiles it again.
std::string write_reproducer(const Graph& graph, const Target& target) {
  const std::string text = to_text(graph);
  const std::string path = fmt::format("braze-repro-{:016x}.braze", hash64(text));
  std::ofstream file(path);
  file << text;
  if (!file.flush()) return {};
  return fmt::format("braze run {} --device {}{}", path, target.simulated ? "sim:" : "", target.name);
}

// With BRAZE_DUMP every compilation of the process has a folder of its own.
std::string dump_folder(const Graph& graph, const CompileOptions& options) {
  if (!options.dump_folder.empty()) return options.dump_folder;
  const auto folder = read_env(kEnvDump);
  if (!folder || folder->empty()) return {};
  static std::atomic<int> compilations = 0;
  return (std::filesystem::path(*folder) / fmt::format("{:03}-{}", compilations++, graph.name())).string();
}

}  // namespace

Program compile(const Graph& graph, const Target& target, const CompileOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  fail_if_any(verify(graph), fmt::format("the graph {}", quote(graph.name())));
  Dump dump(dump_folder(graph, options));
  dump.write("graph.braze", graph);
  Program program;
  if (target.kind == TargetKind::Interpreter) {
    program = interpreter_program(graph);
  } else {
    try {
      program = compiled_program(graph, target, options, dump);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::Internal) throw;
      const std::string command = write_reproducer(graph, target);
      fail(error.code(), error.message(), {error.location(), error.node(), command.empty() ? error.fix() : "please report this; it is replayed by: " + command});
    }
  }
  program.name = graph.name();
  program.target = target;
  program.ops_before_fusion = count_ops(graph);
  program.compile_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return program;
}

}  // namespace braze
