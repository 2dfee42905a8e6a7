// pipeline.cpp — compile(): the steps from a Graph to a Program, in order.
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <span>

#include "braze/compile.h"
#include "braze/error.h"
#include "compiler/codegen/code_generator.h"
#include "compiler/codegen/ptx_assembler.h"
#include "compiler/fusion/partition.h"
#include "compiler/generate_p.h"
#include "compiler/kernel_codes.h"
#include "compiler/kernels_p.h"
#include "compiler/launches_p.h"
#include "compiler/passes/approximate.h"
#include "compiler/passes/expand.h"
#include "compiler/passes/flatten_updates.h"
#include "compiler/passes/fold.h"
#include "compiler/passes/interchange_sums.h"
#include "compiler/passes/join_groups.h"
#include "compiler/passes/merge_sorts.h"
#include "compiler/passes/narrow_dots.h"
#include "compiler/passes/order_factors.h"
#include "compiler/passes/pack_factors.h"
#include "compiler/passes/regular_indices.h"
#include "compiler/passes/share_divisors.h"
#include "compiler/passes/simplify.h"
#include "compiler/passes/sort_scatters.h"
#include "compiler/passes/split_concats.h"
#include "compiler/passes/split_dots.h"
#include "compiler/passes/split_gaps.h"
#include "compiler/passes/unroll_reductions.h"
#include "compiler/passes/unscatter.h"
#include "compiler/passes/windowed_dots.h"
#include "compiler/phases_p.h"
#include "compiler/planning/overlap.h"
#include "compiler/planning/plan.h"
#include "compiler/planning/single_launches.h"
#include "ir/code/text.h"
#include "ir/graph/origins.h"
#include "ir/graph/reference.h"
#include "ir/graph/rewrite.h"
#include "ir/graph/sizes.h"
#include "ir/graph/text.h"
#include "ir/graph/verify.h"
#include "ir/program/text.h"
#include "ir/support/config.h"
#include "ir/support/hash.h"
#include "ir/support/progress.h"
#include "ir/support/text.h"

namespace braze {

namespace {

/// A function from Graph to Graph.
struct Pass {
  std::string_view name;
  Graph (*run)(const Graph&, const Target&);
  std::string_view purpose;
  bool only_fast = false;  // changes results
  bool only_gpu = false;
  bool not_strict = false;  // moves roundings into sums, or adds terms in another order
};

/// A pass that does the same for all targets.
template <Graph (*kRun)(const Graph&)>
Graph alike(const Graph& graph, const Target&) {
  return kRun(graph);
}

constexpr Pass kPasses[] = {
    // The first: the reference finds the same sums in the graph as it is written.
    {.name = "interchange_sums",
     .run = alike<interchange_sums>,
     .purpose = "sums of a product's results become sums of a smaller product's",
     .not_strict = true},
    {"regular_gathers", alike<regular_gathers>,
     "gathers at regular places become movements of axes"},
    {.name = "regular_scatters",
     .run = regular_scatters,
     .purpose = "scatters to regular places become sums of moved updates",
     .not_strict = true},
    {.name = "unscatter",
     .run = unscatter,
     .purpose = "a small scatter_add becomes a sum over its updates",
     .only_gpu = true,
     .not_strict = true},
    {.name = "sort_scatters",
     .run = sort_scatters,
     .purpose = "many terms of a scatter are sorted by their places",
     .only_gpu = true,
     .not_strict = true},
    {"merge_sorts", alike<merge_sorts>,
     "sorts become ranks within short pieces, and merges of pieces"},
    {"expand", alike<expand>, "formula rows become machine and math rows"},
    {"approximate", alike<approximate>, "fewer roundings and divisions", /*only_fast=*/true},
    {.name = "windowed_dots",
     .run =
         [](const Graph& graph, const Target& target) {
           return windowed_dots(graph, target.kind == TargetKind::Gpu ? kTermsOfMatrixUnits : 1);
         },
     .purpose = "sums over the taps of windows of products become products over windows",
     .not_strict = true},
    {.name = "split_gaps",
     .run = [](const Graph& graph, const Target&) { return split_gaps(graph); },
     .purpose = "products over windows with gaps become products over windows without",
     .not_strict = true},
    {.name = "join_groups",
     .run = join_groups,
     .purpose = "groups of narrow products are joined to wider ones",
     .only_gpu = true,
     .not_strict = true},
    {.name = "narrow_dots",
     .run = alike<narrow_dots>,
     .purpose = "batches of narrow products become sums of products",
     .only_gpu = true},
    {"fold", alike<fold>, "nodes that depend on constants only are computed"},
    {"simplify", alike<simplify>, "local rewrites that change no bit of a result"},
    {"unroll_reductions", alike<unroll_reductions>,
     "small reductions in others become expressions"},
    {"split_concats", alike<split_concats>, "many parts are joined in steps"},
};

/// The bytes of a tensor's elements.
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
Program interpreter_program(const Graph& whole) {
  const Graph graph = without_dead_code(with_origins(whole));
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
  program.locations = locations_of(whole);
  launch.scalars = program.symbols;
  launch.name = graph.name();
  launch.schedule = "interpreted";
  program.artifacts.push_back({"graph", graph.name(), to_text(graph, {.locations = true}), {}});
  program.launches.push_back(std::move(launch));
  program.report = fmt::format("{}: {} ops, interpreted one by one; nothing is fused\n",
                               graph.name(), count_ops(graph));
  return program;
}

Graph run_passes(Graph graph, Precision precision, const Target& target, PhaseViewers& viewers) {
  const auto shown = [&](std::string_view name) {
    check_after(graph, name);
    viewers.show(name, graph);
  };
  if (std::optional<Graph> flat = flatten_updates(graph)) {
    graph = std::move(*flat);
    shown("flatten_updates");
  }
  for (const Pass& pass : kPasses) {
    if (pass.only_fast && precision != Precision::Fast) continue;
    if (pass.not_strict && precision == Precision::Strict) continue;
    if (pass.only_gpu && target.kind != TargetKind::Gpu) continue;
    const TraceSpan span("pass", pass.name);
    graph = pass.run(graph, target);
    shown(pass.name);
  }
  if (target.matrix_speed > 0) {
    graph = share_divisors(graph, precision);
    shown("share_divisors");
  }
  if (target.asynchronous_dots || target.kind == TargetKind::Cpu) {
    graph = split_dots(graph, target);
    shown("split_dots");
  }
  if (target.kind == TargetKind::Gpu && target.matrix_speed > 0) {
    OrderedFactors ordered = order_factors(graph, target, precision);
    graph = std::move(ordered.graph);
    shown("order_factors");
    if (!ordered.verdicts.empty())
      viewers.show({"orders", {}, [&] {
                      return join(ordered.verdicts, "\n", std::mem_fn(&FactorOrders::to_string)) +
                             "\n";
                    }});
  }
  if (target.asynchronous_dots) {
    graph = pack_factors(graph);
    shown("pack_factors");
  } else if (target.matrix_speed > 0) {
    graph = align_factors(graph);
    shown("align_factors");
  }
  return graph;
}

// Gives inputs and outputs the types of the graph, where passes have changed their shapes.
void restore_types(Program& program, const Graph& graph) {
  for (size_t i = 0; i < program.inputs.size(); ++i)
    program.inputs[i].type = graph[graph.inputs()[i]].type;
  for (size_t i = 0; i < program.outputs.size(); ++i)
    program.outputs[i].type = graph[graph.outputs()[i].node].type;
  for (Slot& slot : program.slots) {
    if (slot.kind == Slot::Kind::Input) slot.type = program.inputs[slot.index].type;
    if (slot.kind == Slot::Kind::Output) slot.type = program.outputs[slot.index].type;
  }
}

// The locations in `source` are numbers of nodes; `locations` are the true ones. `apart` receives
// the launches one by one, and `codes` has codes of other programs. Both may be null.
Program compiled_program(const Graph& source, std::span<const SourceLocation> locations,
                         const Target& target, const CompileOptions& options, PhaseViewers& viewers,
                         KernelCodes* codes, SingleLaunches* apart) {
  std::optional<Progress> progress;  // of one stage after the other
  progress.emplace(fmt::format("compiling {}: choosing kernels", source.name()));
  const Graph graph = run_passes(source, options.precision, target, viewers);
  const LoopForms forms(graph);
  const Partition parts = in_span("pass", "fusion", {}, [&] {
    return partition(forms, target, {options.fuse, options.by_cost, options.precision});
  });
  const std::string report =
      fmt::format("precision {}\n{}", name(options.precision), to_text(graph, parts));
  const Graph shown = options.observer ? with_locations(graph, locations) : Graph();
  viewers.show({"fusion", {}, [&] { return with_locations(report, locations); }, &shown, &parts});
  const Updates updates = decide_updates(forms, parts.fusions, target);
  const std::vector<bool> unwritten =
      can_overlap(target) ? unwritten_nodes(graph) : std::vector<bool>();
  const Compilation compilation{forms, target, options, updates, unwritten, viewers};
  progress.reset();
  Kernels kernels = make_kernels(compilation, parts);
  progress.emplace(fmt::format("compiling {}: choosing launches", source.name()));
  const Launches launches =
      in_span("pass", "order", {}, [&] { return make_launches(compilation, kernels); });
  for (size_t n = 0; n < launches.members.size(); ++n) {
    const Kernel& kernel = kernels.fusions[launches.members[n].front()].kernel;
    if (kernel.members > 1) viewers.show("kernel", kernel, kernel.name);
    if (!launches.codes[n].empty()) show_code(kernel, target, options, viewers);
  }
  progress.reset();
  generate_all(kernels.fusions, launches, target, options, codes, source.name());
  if (apart)
    *apart = single_launches(with_locations(graph, locations), kernels.fusions, launches.members,
                             updates, target, options.precision);
  Program program = in_span("pass", "plan", {}, [&] {
    return plan(forms, kernels.fusions, launches.members, updates, target);
  });
  restore_types(program, source);
  program.precision = options.precision;
  program.report = report;
  program.locations.assign(locations.begin(), locations.end());
  viewers.show("program", program);
  return program;
}

// Writes the graph to a file of its own, and returns the command that compiles it again.
std::string write_reproducer(const Graph& graph, const Target& target,
                             const CompileOptions& options) {
  const std::string text = to_text(graph);
  const std::filesystem::path folder = config().reproducer_folder.value_or(".");
  if (folder.empty()) return {};
  const std::string path =
      (folder / fmt::format("braze-repro-{:016x}.braze", hash64(text))).lexically_normal();
  std::ofstream file(path);
  file << text;
  if (!file.flush()) return {};
  std::string command = fmt::format("braze inspect {} --stage=program --target {}{}", path,
                                    target.simulated ? "sim:" : "", target.name);
  if (options.precision != Precision::Standard)
    command += fmt::format(" --precision {}", name(options.precision));
  if (options.gpu_code == GpuCode::Nvrtc) command += " --codegen nvrtc";
  if (!options.fuse) command += " --no-fuse";
  if (!options.by_cost) command += " --fuse-all";
  for (const auto& [kernel, schedule] : options.schedules)
    command += fmt::format(" --schedule '{}={}'", kernel, schedule);
  return command;
}

}  // namespace

std::string key_text(const CompileOptions& options) {
  // This names all members, so that a new member does not compile until it is added here: either to
  // the key, or to the members that are left out on purpose.
  const auto& [precision, fuse, by_cost, schedules, gpu_code, assemble, dump_folder, observer] =
      options;
  std::string text =
      fmt::format("precision {}\nfuse {}\nby_cost {}\ngpu_code {}\nassemble {}\n", name(precision),
                  fuse, by_cost, static_cast<int>(gpu_code), assemble);
  for (const auto& [kernel, schedule] : schedules)
    text += fmt::format("schedule {} {}\n", quote(kernel), quote(schedule));
  // These members do not change the program.
  static_cast<void>(dump_folder), static_cast<void>(observer);
  return text;
}

std::string toolchain_text(const Target& target, const CompileOptions& options) {
  if (target.simulated || target.kind == TargetKind::Interpreter) return {};
  if (target.kind != TargetKind::Gpu) return fmt::format("llvm {}\n", llvm_version());
  const PtxAssembler* const assembler = options.assemble ? ptx_assembler() : nullptr;
  return (options.gpu_code == GpuCode::Nvrtc ? fmt::format("nvrtc {}\n", nvrtc_identity())
                                             : fmt::format("llvm {}\n", llvm_version())) +
         fmt::format("assembler {}\n", assembler ? assembler->identity() : "none");
}

namespace {

Program compile_graph(const Graph& graph, const Target& target, const CompileOptions& options,
                      KernelCodes* codes, SingleLaunches* apart) {
  return timed(graph.name(), target, [&] {
    fail_if_any(verify(graph), fmt::format("the graph {}", quote(graph.name())));
    check_determined(graph);
    PhaseViewers viewers(graph.name(), options);
    viewers.show("graph", graph);
    const std::vector<SourceLocation> locations = locations_of(graph);
    Program program;
    if (target.kind == TargetKind::Interpreter) {
      program = interpreter_program(graph);
      viewers.show("program", program);
    } else {
      try {
        program = compiled_program(with_origins(graph), locations, target, options, viewers, codes,
                                   apart);
      } catch (const Error& error) {
        const std::optional<uint32_t> origin = origin_of(error.location());
        const bool ours = error.kind() == ErrorKind::Internal;
        if (!origin && !ours) throw;
        const std::string command = ours ? write_reproducer(graph, target, options) : "";
        fail(error.code(), error.message(),
             {origin ? locations.at(*origin) : error.location(), error.node(),
              command.empty() ? error.fix() : "please report this; it is replayed by: " + command});
      }
    }
    program.name = graph.name();
    program.target = target;
    program.ops_before_fusion = count_ops(graph);
    return program;
  });
}

}  // namespace

Program compile(const Graph& graph, const Target& target, const CompileOptions& options) {
  return compile_graph(graph, target, options, nullptr, nullptr);
}

Program compile_with(KernelCodes& codes, const Graph& graph, const Target& target,
                     const CompileOptions& options) {
  return compile_graph(graph, target, options, &codes, nullptr);
}

SingleLaunches compile_single_launches(const Graph& graph, const Target& target,
                                       const CompileOptions& options) {
  BRAZE_CHECK(target.kind != TargetKind::Interpreter, "the interpreter has no kernels");
  SingleLaunches out;
  compile_graph(graph, target, options, nullptr, &out);
  return out;
}

}  // namespace braze
