#include "tools/braze/explanation.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "compiler/fusion/partition.h"
#include "compiler/planning/plan.h"
#include "ir/graph/text.h"
#include "ir/support/text.h"
#include "ir/target/occupancy.h"
#include "tools/braze/source.h"

namespace braze::tool {

namespace {

std::vector<Edge> edges_of(const Graph& graph, const GraphPrinter& printer,
                           const Partition& partition) {
  std::vector<Edge> edges;
  for (const EdgeReason& edge : partition.edges)
    edges.push_back({printer.value(edge.producer), printer.value(edge.consumer),
                     graph[edge.consumer].location.to_string(), edge.code, edge.detail});
  return edges;
}

std::vector<FusedKernel> kernels_of(const Graph& graph, const GraphPrinter& printer,
                                    const Partition& partition) {
  const std::vector<std::string> names = kernel_names(graph, partition.fusions);
  std::vector<FusedKernel> kernels;
  std::map<uint32_t, size_t> writer;
  for (size_t i = 0; i < partition.fusions.size(); ++i) {
    const Fusion& fusion = partition.fusions[i];
    FusedKernel kernel{names[i], {}, {}, partition.costs[i]};
    for (const NodeId node : fusion.nodes) kernel.values.insert(printer.value(node));
    for (const NodeId input : fusion.inputs)
      if (const auto found = writer.find(input.index); found != writer.end())
        kernel.reads.push_back(found->second);
    std::sort(kernel.reads.begin(), kernel.reads.end());
    kernel.reads.erase(std::unique(kernel.reads.begin(), kernel.reads.end()), kernel.reads.end());
    for (const NodeId output : fusion.outputs) writer[output.index] = i;
    kernels.push_back(std::move(kernel));
  }
  return kernels;
}

}  // namespace

Explanation explained(const Graph& graph, const Target& target, CompileOptions options) {
  Explanation out;
  options.observer = [&](const CompilePhase& phase) {
    if (phase.stage == "limit" || phase.stage == "orders") {
      std::istringstream lines(phase.text());
      auto& found = phase.stage == "limit" ? out.limits[std::string(phase.kernel)] : out.orders;
      for (std::string line; std::getline(lines, line);) found.push_back(line);
    }
    if (!phase.partition) return;
    const GraphPrinter printer(*phase.graph);
    out.edges = edges_of(*phase.graph, printer, *phase.partition);
    out.kernels = kernels_of(*phase.graph, printer, *phase.partition);
  };
  out.program = compile_source(graph, target, options);
  return out;
}

double PhaseFacts::occupancy() const {
  return static_cast<double>(resident_blocks * threads) / kMultiprocessorThreads;
}

std::vector<PhaseFacts> phase_facts(const Program& program, const Launch& launch) {
  std::vector<PhaseFacts> phases;
  if (!launch.is_kernel()) return phases;
  const Artifact& artifact = program.artifacts[launch.artifact];
  for (size_t i = 0; i < artifact.facts.size(); ++i) {
    const CodeFacts& facts = artifact.facts[i];
    const GpuPhase& phase = launch.gpu[i];
    phases.push_back({.entry = artifact.entry_names[i],
                      .threads = phase.block,
                      .registers = facts.registers,
                      .spill_bytes = facts.spill_bytes,
                      .stack_bytes = facts.local_bytes,
                      .shared_bytes = phase.shared_bytes,
                      .resident_blocks = resident_blocks(
                          program.target, {phase.block, facts.registers, phase.shared_bytes}),
                      .warnings = facts.warnings});
  }
  return phases;
}

std::string kernels_text(const Program& program) {
  const auto kernels =
      static_cast<size_t>(std::count_if(program.launches.begin(), program.launches.end(),
                                        [](const Launch& launch) { return launch.is_kernel(); }));
  const size_t codes = program.artifacts.size();
  std::string text = fmt::format("{} kernel{}", kernels, kernels == 1 ? "" : "s");
  if (codes < kernels) text += fmt::format(" ({} compiled, equal kernels once)", codes);
  return text;
}

std::string bytes_amount(const Expr& e) {
  const auto constant = e.as_constant();
  return constant ? bytes_text(static_cast<uint64_t>(*constant))
                  : fmt::format("({}) B", e.to_string());
}

std::string flops_amount(const Expr& e) {
  const auto constant = e.as_constant();
  return constant ? flops_text(static_cast<uint64_t>(*constant))
                  : fmt::format("({})", e.to_string());
}

std::string flops_text(uint64_t flops) {
  return flops < 1'000'000 ? std::to_string(flops)
                           : fmt::format("{:.4g} M", static_cast<double>(flops) * 1e-6);
}

std::string instances_text(const Launch& launch) {
  const std::string of_one =
      join(launch.instances, " then ", [](const Expr& e) { return e.to_string(); });
  return launch.members.empty() ? of_one : fmt::format("{} x ({})", launch.members.size(), of_one);
}

}  // namespace braze::tool
