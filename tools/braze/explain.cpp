// explain.cpp — braze explain: the kernels of a program, and why every edge was or was not fused.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "compiler/fusion/partition.h"
#include "ir/graph/text.h"
#include "ir/program/text.h"
#include "ir/support/text.h"
#include "ir/target/occupancy.h"
#include "tools/braze/arguments.h"
#include "tools/braze/command.h"
#include "tools/braze/compile_times.h"
#include "tools/braze/model.h"
#include "tools/braze/options.h"
#include "tools/braze/report.h"
#include "tools/braze/source.h"

namespace braze::tool {

namespace {

struct Options {
  std::string file, target, edge;
  bool json = false, times = false;
  CompileFlags compile;
  ModelFlags model;
};

struct Edge {
  std::string producer, consumer;  ///< "%x", as in the graph after the passes
  std::string where;               ///< the consumer's line
  const Code* reason;
  std::string costs;
};

std::vector<Edge> edges_of(const Graph& graph, const Partition& partition) {
  const GraphPrinter printer(graph);
  std::vector<Edge> edges;
  for (const EdgeReason& edge : partition.edges)
    edges.push_back({printer.value(edge.producer), printer.value(edge.consumer),
                     graph[edge.consumer].location.to_string(), edge.code, edge.detail});
  return edges;
}

// "a,b", with or without %.
std::vector<Edge> only(const std::vector<Edge>& edges, const std::string& wanted) {
  const size_t comma = wanted.find(',');
  if (comma == std::string::npos) fail_usage("--edge names two values: --edge a,b");
  const auto value = [](std::string name) { return name.starts_with('%') ? name : "%" + name; };
  const std::string producer = value(wanted.substr(0, comma));
  const std::string consumer = value(wanted.substr(comma + 1));
  std::vector<Edge> found;
  std::vector<std::string> known;
  for (const Edge& edge : edges) {
    if (edge.producer == producer && edge.consumer == consumer) found.push_back(edge);
    known.push_back(edge.producer + "," + edge.consumer);
  }
  if (found.empty())
    fail_usage(fmt::format("there is no edge from {} to {}{}", producer, consumer,
                           did_you_mean(producer + "," + consumer, known)));
  return found;
}

// "64 KiB", or the expression where it depends on a size.
std::string amount(const Expr& e, std::string (*text)(uint64_t)) {
  const auto constant = e.as_constant();
  return constant ? text(static_cast<uint64_t>(*constant)) : fmt::format("({})", e.to_string());
}

std::string flops_text(uint64_t flops) {
  return flops < 1'000'000 ? std::to_string(flops)
                           : fmt::format("{:.4g} M", static_cast<double>(flops) * 1e-6);
}

std::string instances_text(const Launch& launch) {
  return join(launch.instances, " then ", [](const Expr& e) { return e.to_string(); });
}

// What the assembler of a GPU kernel says of its phases, and what fits a multiprocessor.
void print_facts(const Target& target, const Artifact& artifact, const Launch& launch) {
  for (size_t i = 0; i < artifact.facts.size(); ++i) {
    const CodeFacts& facts = artifact.facts[i];
    const GpuPhase& phase = launch.gpu[i];
    const int64_t blocks =
        resident_blocks(target, {phase.block, facts.registers, phase.shared_bytes});
    fmt::print(
        "    {}: {} registers, {} spilled, {} of stack, {} shared\n"
        "      {} {} of {} threads on a multiprocessor, {:.0f} % of its threads\n",
        artifact.entry_names[i], facts.registers,
        bytes_text(static_cast<uint64_t>(facts.spill_bytes)),
        bytes_text(static_cast<uint64_t>(facts.local_bytes)),
        bytes_text(static_cast<uint64_t>(phase.shared_bytes)), blocks,
        blocks == 1 ? "block" : "blocks", phase.block,
        100.0 * static_cast<double>(blocks * phase.block) / kMultiprocessorThreads);
    for (const std::string& warning : facts.warnings) fmt::print("    {}\n", warning);
  }
}

void print_launch(const Program& program, const Launch& launch) {
  if (launch.artifact == Launch::kCopy) {
    fmt::print("\n{}: a copy of {}\n", launch.name, amount(launch.bytes_read, bytes_text));
    return;
  }
  if (launch.artifact == Launch::kCollective) {
    const MeshAxis& axis = program.mesh[launch.collective.axis];
    fmt::print("\ncollective {}: {} over {} ({} devices)\n", launch.name,
               name(launch.collective.kind), axis.name, axis.size);
    for (const std::string& op : op_texts(program, launch)) fmt::print("    {}\n", op);
    return;
  }
  fmt::print("\nkernel {}\n", launch.name);
  fmt::print("  {} read, {} written, {} flops, instances {}\n",
             amount(launch.bytes_read, bytes_text), amount(launch.bytes_written, bytes_text),
             amount(launch.flops, flops_text), instances_text(launch));
  const Artifact& artifact = program.artifacts[launch.artifact];
  fmt::print("  code {} {}{}\n", artifact.format, bytes_text(artifact.code.size()),
             artifact.maker.empty() ? "" : " by " + artifact.maker);
  print_facts(program.target, artifact, launch);
  fmt::print("  schedule {}\n  ops\n", launch.schedule);
  for (const std::string& op : op_texts(program, launch)) fmt::print("    {}\n", op);
}

void print_edges(const std::vector<Edge>& edges) {
  if (edges.empty()) return;
  std::vector<std::vector<std::string>> rows;
  std::set<std::pair<std::string_view, std::string_view>> legend;
  for (const Edge& edge : edges) {
    rows.push_back({edge.producer, "->", edge.consumer, std::string(edge.reason->name), edge.costs,
                    edge.where.empty() ? "" : "at " + edge.where});
    legend.emplace(edge.reason->name, edge.reason->summary);
  }
  fmt::print("\nedges\n{}", table(rows));
  std::vector<std::vector<std::string>> meanings;
  for (const auto& [name, summary] : legend)
    meanings.push_back({std::string(name), std::string(summary)});
  fmt::print("\nreasons\n{}", table(meanings));
}

// "12 kernels", and of how many codes where some share one.
std::string kernels_text(const Program& program) {
  const auto kernels =
      static_cast<size_t>(std::count_if(program.launches.begin(), program.launches.end(),
                                        [](const Launch& launch) { return launch.is_kernel(); }));
  const size_t codes = program.artifacts.size();
  std::string text = fmt::format("{} kernel{}", kernels, kernels == 1 ? "" : "s");
  if (codes < kernels) text += fmt::format(" ({} compiled, equal ones once)", codes);
  return text;
}

// The phases of a GPU kernel.
std::string facts_json(const Program& program, const Launch& launch) {
  std::vector<std::string> phases;
  if (!launch.is_kernel()) return json::array(phases);
  const Artifact& artifact = program.artifacts[launch.artifact];
  for (size_t i = 0; i < artifact.facts.size(); ++i) {
    const CodeFacts& facts = artifact.facts[i];
    const GpuPhase& phase = launch.gpu[i];
    const BlockNeeds needs{phase.block, facts.registers, phase.shared_bytes};
    phases.push_back(json::object(
        {{"threads", std::to_string(phase.block)},
         {"registers", std::to_string(facts.registers)},
         {"spill_bytes", std::to_string(facts.spill_bytes)},
         {"local_bytes", std::to_string(facts.local_bytes)},
         {"shared_bytes", std::to_string(phase.shared_bytes)},
         {"resident_blocks", std::to_string(resident_blocks(program.target, needs))}}));
  }
  return json::array(phases);
}

std::string launch_json(const Program& program, const Launch& launch) {
  std::vector<std::string> ops, instances;
  for (const std::string& op : op_texts(program, launch)) ops.push_back(json::string(op));
  for (const Expr& e : launch.instances) instances.push_back(json::string(e.to_string()));
  return json::object({{"kernel", json::string(launch.name)},
                       {"copy", json::boolean(launch.artifact == Launch::kCopy)},
                       {"ops", json::array(ops)},
                       {"bytes_read", json::string(launch.bytes_read.to_string())},
                       {"bytes_written", json::string(launch.bytes_written.to_string())},
                       {"flops", json::string(launch.flops.to_string())},
                       {"instances", json::array(instances)},
                       {"phases", facts_json(program, launch)},
                       {"schedule", json::string(launch.schedule)}});
}

std::string edge_json(const Edge& edge) {
  return json::object({{"producer", json::string(edge.producer)},
                       {"consumer", json::string(edge.consumer)},
                       {"at", json::string(edge.where)},
                       {"reason", json::string(edge.reason->name)},
                       {"costs", json::string(edge.costs)}});
}

void print_json(const Program& program, const std::vector<Edge>& edges) {
  std::vector<std::string> launches, reasons;
  for (const Launch& launch : program.launches) launches.push_back(launch_json(program, launch));
  for (const Edge& edge : edges) reasons.push_back(edge_json(edge));
  json::print({{"program", json::string(program.name)},
               {"target", json::string(program.target.to_string())},
               {"precision", json::string(std::string(name(program.precision)))},
               {"ops", std::to_string(program.ops_before_fusion)},
               {"codes", std::to_string(program.artifacts.size())},
               {"kernels", json::array(launches)},
               {"edges", json::array(reasons)}});
}

Exit explain(const Options& options) {
  if (!is_model(options.file)) options.model.refuse_for_others();
  const Graph graph = is_model(options.file) ? options.model.load(options.file).graph()
                                             : read_graph(options.file, "explain");
  std::vector<Edge> edges;
  CompileOptions compile = options.compile.options();
  compile.observer = [&](const CompilePhase& phase) {
    if (phase.partition) edges = edges_of(*phase.graph, *phase.partition);
  };
  Program program;
  const auto run = [&] {
    program = compile_source(graph, find_target_of(options.target), compile);
  };
  if (options.times) {
    const CompileTimes times = compile_times(run);
    if (options.json)
      json::print({{"compile", to_json(times)}});
    else
      fmt::print("{}", to_text(times));
    return Exit::Ok;
  }
  run();
  if (!options.edge.empty()) edges = only(edges, options.edge);
  if (options.json) {
    print_json(program, edges);
    return Exit::Ok;
  }
  if (options.edge.empty()) {
    fmt::print("{}: {} ops in {} for {}, {} precision\n", program.name, program.ops_before_fusion,
               kernels_text(program), program.target.name, name(program.precision));
    for (const Launch& launch : program.launches) print_launch(program, launch);
  }
  print_edges(edges);
  return Exit::Ok;
}

std::function<Exit()> add(Arguments& arguments) {
  auto options = std::make_shared<Options>();
  arguments.add_option("FILE", options->file, "Graph text, or a model (.onnx); - is stdin")
      .required();
  arguments.add_option("--edge", options->edge, "A,B: only the verdict on the edge from %A to %B");
  arguments.add_option("--target", options->target, "Machine to compile for (default: this one)");
  options->compile.add_to(arguments);
  options->model.add_to(arguments);
  arguments.add_flag("--compile", options->times, "Instead, where the time of compiling went");
  arguments.add_flag("--json", options->json, "Print JSON");
  return [options] { return explain(*options); };
}

}  // namespace

const Command kExplain = {
    "explain", "Shows the kernels of a program, and why they are what they are.",
    "  braze explain softmax.braze\n"
    "  braze explain softmax.braze --edge max,exp     # one verdict, with the costs compared\n"
    "  braze explain softmax.braze --compile          # the time of each step and kernel\n"
    "  braze explain softmax.braze --json | jq .kernels\n",
    add};

}  // namespace braze::tool
