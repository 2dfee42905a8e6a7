// pipeline.cpp — compile(): the steps from a Graph to a Program, in order.
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <unordered_map>
#include <variant>

#include "braze/compile.h"
#include "braze/error.h"
#include "braze/trace.h"
#include "compiler/codegen/code_generator.h"
#include "compiler/codegen/ptx_assembler.h"
#include "compiler/fusion/kernel_graph.h"
#include "compiler/fusion/partition.h"
#include "compiler/kernel_codes.h"
#include "compiler/loops/alike.h"
#include "compiler/loops/build.h"
#include "compiler/loops/cost.h"
#include "compiler/loops/lists.h"
#include "compiler/loops/text.h"
#include "compiler/loops/tile_loops.h"
#include "compiler/lowering/lower.h"
#include "compiler/passes/approximate.h"
#include "compiler/passes/expand.h"
#include "compiler/passes/flatten_updates.h"
#include "compiler/passes/fold.h"
#include "compiler/passes/interchange_sums.h"
#include "compiler/passes/narrow_dots.h"
#include "compiler/passes/pack_factors.h"
#include "compiler/passes/share_divisors.h"
#include "compiler/passes/simplify.h"
#include "compiler/passes/split_concats.h"
#include "compiler/passes/split_dots.h"
#include "compiler/passes/split_gaps.h"
#include "compiler/passes/unroll_reductions.h"
#include "compiler/passes/unscatter.h"
#include "compiler/passes/windowed_dots.h"
#include "compiler/planning/equal.h"
#include "compiler/planning/order.h"
#include "compiler/planning/overlap.h"
#include "compiler/planning/plan.h"
#include "compiler/planning/single_launches.h"
#include "ir/code/static_loops.h"
#include "ir/code/text.h"
#include "ir/code/walk.h"
#include "ir/graph/coarse.h"
#include "ir/graph/origins.h"
#include "ir/graph/reference.h"
#include "ir/graph/rewrite.h"
#include "ir/graph/sizes.h"
#include "ir/graph/text.h"
#include "ir/graph/verify.h"
#include "ir/kernel/verify.h"
#include "ir/program/text.h"
#include "ir/support/clocks.h"
#include "ir/support/config.h"
#include "ir/support/env.h"
#include "ir/support/hash.h"
#include "ir/support/parallel.h"
#include "ir/support/progress.h"
#include "ir/support/text.h"
#include "ir/target/features.h"
#include "ir/tile/verify.h"

namespace braze {

namespace codes {
inline constexpr Code kDumpFolder{
    "dump-folder", ErrorKind::InvalidArgument,
    "The steps of a compilation cannot be written to the folder that was given."};
inline constexpr Code kNoKernel{"no-kernel", ErrorKind::InvalidArgument,
                                "A schedule is given for a kernel that does not exist."};
inline constexpr Code kBadSchedule{"bad-schedule", ErrorKind::InvalidArgument,
                                   "The text of a schedule does not make a kernel."};
inline constexpr Code kKernelTarget{"kernel-target", ErrorKind::Unsupported,
                                    "A tile program or kernel is not for this machine."};
inline constexpr Code kTileKernel{"tile-kernel", ErrorKind::Unsupported,
                                  "A tile program makes a kernel that the machine cannot run."};
inline constexpr Code kNoMachineCode{"no-machine-code", ErrorKind::Unsupported,
                                     "A kernel that was given as text cannot become machine code."};
}  // namespace codes

namespace {

/// A function from Graph to Graph.
struct Pass {
  std::string_view name;
  Graph (*run)(const Graph&);
  std::string_view purpose;
  bool only_fast = false;  // changes results
  bool only_gpu = false;
  bool not_strict = false;  // moves roundings into sums
};

constexpr Pass kPasses[] = {
    // The first: the reference finds the same sums in the graph as it is written.
    {.name = "interchange_sums",
     .run = interchange_sums,
     .purpose = "sums of a product's results become sums of a smaller product's",
     .not_strict = true},
    {.name = "unscatter",
     .run = unscatter,
     .purpose = "a small scatter_add becomes a sum over its updates",
     .only_gpu = true},
    {"expand", expand, "formula rows become machine and math rows"},
    {"approximate", approximate, "fewer roundings and divisions", /*only_fast=*/true},
    {.name = "windowed_dots",
     .run = windowed_dots,
     .purpose = "sums over the taps of windows of products become products over windows",
     .not_strict = true},
    {.name = "split_gaps",
     .run = [](const Graph& graph) { return split_gaps(graph); },
     .purpose = "products over windows with gaps become products for each remainder",
     .not_strict = true},
    {.name = "narrow_dots",
     .run = narrow_dots,
     .purpose = "batches of narrow products become sums of products",
     .only_gpu = true},
    {"fold", fold, "nodes that depend on constants only are computed"},
    {"simplify", simplify, "local rewrites that change no bit of a result"},
    {"unroll_reductions", unroll_reductions, "small reductions in others become expressions"},
    {"split_concats", split_concats, "many parts are joined in steps"},
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

// The extension of the files that hold a step's result in the dump folder.
std::string_view file_extension(std::string_view stage) {
  constexpr std::pair<std::string_view, std::string_view> kExtensions[] = {
      {"fusion", "txt"}, {"refusal", "txt"}, {"limit", "txt"}, {"llvm", "ll"},    {"asm", "s"},
      {"ptx", "ptx"},    {"cuda", "cu"},     {"sass", "sass"}, {"program", "txt"}};
  for (const auto& [name, extension] : kExtensions)
    if (name == stage) return extension;
  return "braze";
}

// The least level of BRAZE_DEBUG at which a step is printed: low levels print summaries, and high
// ones details.
int64_t debug_level(std::string_view stage) {
  constexpr std::pair<std::string_view, int64_t> kLevels[] = {
      {"program", 1}, {"fusion", 2}, {"unscheduled", 4}, {"loops", 3}, {"tile", 4}, {"kernel", 4},
      {"llvm", 5},    {"asm", 5},    {"ptx", 5},         {"cuda", 5},  {"sass", 5}};
  for (const auto& [name, level] : kLevels)
    if (name == stage) return level;
  return 3;  // graphs
}

// Shows every step to whoever asked for it: the observer, the log, and files numbered in order.
// Texts are made only if somebody reads them.
class PhaseViewers {
 public:
  PhaseViewers(std::string folder, const CompileOptions& options)
      : folder_(std::move(folder)),
        observer_(options.observer),
        debug_(read_env_int(kEnvDebug, 0, 5).value_or(0)) {
    if (folder_.empty()) return;
    std::error_code error;
    std::filesystem::create_directories(folder_, error);
    if (error) fail_dump(folder_, error.message());
  }

  /// Whether somebody observes the compilation. If so, its steps run one after the other.
  bool any() const { return observer_ || debug_ > 0 || !folder_.empty(); }

  void show(const CompilePhase& phase) {
    if (observer_) observer_(phase);
    if (debug_ >= debug_level(phase.stage)) {
      std::string text = fmt::format("// {} {}\n{}", phase.stage, phase.kernel, phase.text());
      if (text.ends_with('\n')) text.pop_back();
      write_log(LogLevel::Debug, text);
    }
    if (!folder_.empty()) write(phase);
  }
  template <class Code>
  void show(std::string_view stage, const Code& code, std::string_view kernel = {}) {
    show({.stage = stage, .kernel = kernel, .text = [&] { return to_text(code); }});
  }

 private:
  void write(const CompilePhase& phase) {
    std::string name = fmt::format("{:02}-", number_++);
    if (!phase.kernel.empty()) name += fmt::format("{}.", phase.kernel);
    name += fmt::format("{}.{}", phase.stage, file_extension(phase.stage));
    const std::filesystem::path path = std::filesystem::path(folder_) / name;
    std::ofstream file(path);
    file << phase.text();
    if (!file.flush()) fail_dump(path.string(), "the file cannot be written");
  }

  [[noreturn]] static void fail_dump(const std::string& path, const std::string& why) {
    fail(codes::kDumpFolder,
         fmt::format("the steps of the compilation cannot be written to {}: {}", quote(path), why));
  }

  const std::string folder_;
  const std::function<void(const CompilePhase&)>& observer_;
  const int64_t debug_;
  int number_ = 0;
};

// Calls `make`, and records its time on the timeline.
template <class Make>
auto in_span(std::string_view category, std::string_view name, std::string_view subject,
             Make&& make) {
  const TraceSpan span(category, name, subject);
  return make();
}

void check_after(const Graph& graph, std::string_view pass) {
  const std::vector<Diagnostic> findings = verify(graph);
  if (findings.empty()) return;
  fail(braze::codes::kInternal,
       fmt::format("pass {} made a graph that breaks rules of its language, {} in all: {}", pass,
                   findings.size(), findings.front().message),
       {findings.front().location, findings.front().context, "please report this"});
}

// If a tile program or kernel breaks a rule of its language, that is a bug of the step that made
// it.
template <class Code>
void check_after(const Code& code, std::string_view phase) {
  const std::vector<Diagnostic> findings = verify(code);
  if (findings.empty()) return;
  fail(braze::codes::kInternal,
       fmt::format("{} made @{}, which breaks rules of its language, {} in all: {}", phase,
                   code.name, findings.size(), findings.front().to_string()),
       {.location = findings.front().location, .node = code.name, .fix = "please report this"});
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
    graph = pass.run(graph);
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
  if (target.asynchronous_dots) {
    graph = pack_factors(graph);
    shown("pack_factors");
  } else if (target.matrix_speed > 0) {
    graph = align_factors(graph);
    shown("align_factors");
  }
  return graph;
}

// The schedule that the user gave for a kernel; null if there is none.
const std::string* given_schedule(const CompileOptions& options, const std::string& kernel) {
  const auto found = options.schedules.find(kernel);
  return found == options.schedules.end() ? nullptr : &found->second;
}

Artifact generate(const Kernel& kernel, const Target& target, const CompileOptions& options) {
  const TraceSpan span("lowering", "generate", kernel.name);
  if (target.simulated) return {"kernel", kernel.name, to_text(kernel), {}};
  if (target.kind != TargetKind::Gpu) return generate_image(kernel, target);
  const Assembly assembly = options.assemble ? Assembly::IfPossible : Assembly::Never;
  return options.gpu_code == GpuCode::Nvrtc ? generate_nvrtc(kernel, target, assembly)
                                            : generate_gpu(kernel, target, assembly);
}

struct Launches {
  // By launch: its fusions. The kernel of the first serves all.
  std::vector<std::vector<size_t>> members;
  std::vector<std::string> codes;  // by launch: equal texts share code; empty: a collective
};

// The number of elements that all statements make, those of a loop in each copy of its body. The
// size of the code grows with it.
int64_t count_elements(const Kernel& kernel, const Region& region) {
  int64_t out = 0;
  for (const Statement& statement : region.statements) {
    for (const ValueId result : statement.results) out += kernel[result].type.count();
    int64_t inside = 0;
    for (const Region* nested : regions_of(statement)) inside += count_elements(kernel, *nested);
    const auto* loop = statement.as<ForOp>();
    out += loop ? inside * body_copies(*loop) : inside;
  }
  return out;
}
int64_t count_elements(const Kernel& kernel) {
  int64_t out = 0;
  for (const Phase& phase : kernel.phases) out += count_elements(kernel, phase.body);
  return out;
}

// The code of a kernel. `codes` may have it from another program; null if nothing is kept.
std::shared_ptr<const Artifact> code_of(const Kernel& kernel, const Target& target,
                                        const CompileOptions& options, KernelCodes* codes) {
  const auto make = [&] { return generate(kernel, target, options); };
  // The code of the simulator is the text of the kernel.
  const std::string key = codes && !target.simulated ? code_key(kernel) : "";
  if (key.empty()) return std::make_shared<const Artifact>(make());
  std::shared_ptr<const Artifact> code = codes->get_or_make(key, make);
  if (code->kernel == kernel.name) return code;
  auto renamed = std::make_shared<Artifact>(*code);
  renamed->kernel = kernel.name;
  return renamed;
}

// Makes code for all launches, on all cores. Launches whose kernels are equal get the same code.
void generate_all(std::vector<CompiledFusion>& compiled, const Launches& launches,
                  const Target& target, const CompileOptions& options, KernelCodes* codes,
                  const std::string& program) {
  std::unordered_map<std::string_view, std::vector<size_t>> kernels_of;
  std::vector<const std::vector<size_t>*> distinct;
  for (size_t n = 0; n < launches.members.size(); ++n) {
    if (launches.codes[n].empty()) continue;
    std::vector<size_t>& equal = kernels_of[launches.codes[n]];
    if (equal.empty()) distinct.push_back(&equal);
    equal.push_back(launches.members[n].front());
  }
  // Long code is made first, so that at the end no core has to wait for it.
  std::ranges::stable_sort(distinct, std::greater(), [&](const std::vector<size_t>* equal) {
    return count_elements(compiled[equal->front()].kernel);
  });
  Progress progress("compiling " + program, "code", distinct.size());
  parallel_for(distinct.size(), [&](size_t n) {
    const std::vector<size_t>& equal = *distinct[n];
    const auto code = code_of(compiled[equal.front()].kernel, target, options, codes);
    for (const size_t i : equal) compiled[i].code = code;
    progress.advance();
  });
}

void check_scheduled_names(const CompileOptions& options, const std::vector<std::string>& kernels) {
  for (const auto& [kernel, schedule] : options.schedules) {
    if (std::find(kernels.begin(), kernels.end(), kernel) != kernels.end()) continue;
    const std::string known = join(kernels, ", ", [](const std::string& name) { return name; });
    fail(codes::kNoKernel,
         fmt::format("a schedule is given for {}, but there is no kernel with that name",
                     quote(kernel)),
         {.fix = known.empty() ? "the graph has no kernels" : "the kernels are " + known});
  }
}

// Some numbers in a user's schedule can be checked only when there is code. If the code then breaks
// a rule of its language (for example, if it needs too much room on chip), the error is that of the
// schedule.
template <class Make>
void refuse_schedule_if_broken(const std::string& kernel, const CompileOptions& options,
                               Make&& make) {
  const std::string* given = given_schedule(options, kernel);
  try {
    make();
  } catch (const Error& error) {
    if (!given || error.kind() != ErrorKind::Internal) throw;
    fail(codes::kBadSchedule,
         fmt::format("schedule of @{}: {} does not make a kernel: {}", kernel, *given,
                     error.message()),
         {.fix = "start from the schedule that `braze explain` prints"});
  }
}

// Lowers a tile program to a kernel and shows it to the viewers. The kernel is not verified yet.
// `unwritten` says of its parameters whether their values can be loaded before the kernel waits for
// others.
Kernel lower_shown(const TileProgram& program, const Target& target, PhaseViewers& viewers,
                   const std::vector<bool>* unwritten = nullptr) {
  const TraceSpan span("lowering", "lower", program.name);
  viewers.show("tile", program, program.name);
  Kernel kernel = lower(program, target);
  if (unwritten) load_before_waits(kernel, *unwritten);
  viewers.show("kernel", kernel, kernel.name);
  return kernel;
}

void show_code(const Kernel& kernel, const Target& target, const CompileOptions& options,
               PhaseViewers& viewers) {
  if (target.simulated) return;
  const bool by_nvrtc = target.kind == TargetKind::Gpu && options.gpu_code == GpuCode::Nvrtc;
  if (by_nvrtc)
    viewers.show({"cuda", kernel.name, [&] { return cuda_text(kernel); }});
  else
    viewers.show({"llvm", kernel.name, [&] { return llvm_text(kernel, target); }});
  const auto assembly = [&] {
    return by_nvrtc ? nvrtc_ptx(kernel, target) : assembly_text(kernel, target);
  };
  if (target.kind != TargetKind::Gpu) return viewers.show({"asm", kernel.name, assembly});
  viewers.show({"ptx", kernel.name, assembly});
  viewers.show(
      {"sass", kernel.name, [&] { return gpu_machine_text(generate(kernel, target, options)); }});
}

// The loops of a kernel that an integer bounds which they load, or why one does not; empty if no
// task compares indices with one.
std::string limits_text(const TreeTiling& tiling) {
  std::string out;
  for (const LoopRegion& phase : tiling.tree.phases)
    visit_loops(phase, [&](const Loop& loop) {
      if (loop.limit) out += to_text(tiling.tree, loop) + "\n";
    });
  if (tiling.unlimited)
    out += fmt::format("none ({}): {}\n", tiling.unlimited->code->name, tiling.unlimited->why);
  return out;
}

TreeTiling tiled_kernel(const TilingRequest& request, LoopTree first, const CompileOptions& options,
                        PhaseViewers& viewers) {
  const std::string& name = request.name;
  const TraceSpan span("lowering", "tile", name);
  viewers.show({"unscheduled", name, [&] {
                  return to_text(build_loops(request.forms, request.fusion, name, request.aliases,
                                             nullptr, request.coarse, request.powers));
                }});
  const auto text_of = [](const Refusal& refusal) {
    return fmt::format("{}: {}\n", refusal.code->name, refusal.why);
  };
  const std::string* given = given_schedule(options, name);
  auto made = given
                  ? tile_loops(std::move(first), request.target, parse_steps(*given, "--schedule"))
                  : tile_loops(std::move(first), request.target);
  if (const auto* refusal = std::get_if<Refusal>(&made)) {
    viewers.show({"refusal", name, [&] { return text_of(*refusal); }});
    fail(*refusal->code, fmt::format("@{} cannot be made from a loop tree: {}", name, refusal->why),
         {.fix = "please report this"});
  }
  auto& tiling = std::get<TreeTiling>(made);
  if (tiling.refused) viewers.show({"refusal", name, [&] { return text_of(*tiling.refused); }});
  viewers.show("loops", tiling.tree, name);
  if (const std::string limits = limits_text(tiling); !limits.empty())
    viewers.show({"limit", name, [&] { return limits; }});
  return std::move(tiling);
}

// What decides whether kernels that differ in their sizes become one launch.
struct ListForms {
  std::vector<std::optional<LoopTree>> forms;  // by fusion; none: it is no member of a list
  std::vector<std::string> keys;               // by fusion: equal for members of one list
};

// The steps for a list may make a member slower by this factor, by its estimate.
constexpr double kSlowerInList = 1.1;
// A product in a list takes at most the time of so many launches. Its steps follow its sizes more
// closely than estimates can tell: on an H200, three f32 weight gradients of 784x2048, 2048x2048
// and 2048x10 took 0.4 ms longer in a list than apart.
constexpr double kMostLaunchesOfProduct = 30;

// The kernel of a list, or the reason why there is none.
std::variant<Kernel, Refusal> list_kernel(const std::vector<size_t>& members,
                                          const std::vector<CompiledFusion>& compiled,
                                          const ListForms& lists,
                                          const std::vector<bool>& unwritten, const Target& target,
                                          PhaseViewers& viewers) {
  std::vector<const LoopTree*> forms;
  double seconds = 0;
  for (const size_t k : members) {
    forms.push_back(&*lists.forms[k]);
    seconds += compiled[k].seconds;
  }
  auto joint = list_tree(forms);
  if (auto* refusal = std::get_if<Refusal>(&joint)) return std::move(*refusal);
  auto& [tree, sizes] = std::get<ListTree>(joint);
  tree.name = fmt::format("{}_x{}", compiled[members.front()].kernel.name, members.size());
  auto made = tile_loops(std::move(tree), target);
  if (auto* refusal = std::get_if<Refusal>(&made)) return std::move(*refusal);
  auto& tiling = std::get<TreeTiling>(made);
  const auto longest =
      std::ranges::max_element(members, {}, [&](size_t k) { return compiled[k].seconds; });
  const double alone = compiled[*longest].seconds;
  const double listed =
      cost_of(with_sizes(tiling.tree, sizes[static_cast<size_t>(longest - members.begin())]),
              target)
          .seconds;
  bool multiplies = false;
  for (const LoopRegion& phase : tiling.tree.phases)
    for_each_task(phase, [&](const LoopTask& task, const auto&) {
      multiplies = multiplies || task.kind == LoopTask::Kind::Dot;
    });
  if (multiplies && alone > kMostLaunchesOfProduct * target.launch_seconds)
    return Refusal{&codes::kUnlike,
                   fmt::format("the product of @{} takes {:.1f} us, so that a launch less is "
                               "nothing beside steps for its sizes alone",
                               compiled[*longest].name, 1e6 * alone),
                   ""};
  if (alone > 0 && listed > kSlowerInList * alone)
    return Refusal{
        &codes::kUnlike,
        fmt::format("with steps for all sizes, @{} would take {:.1f} us instead of {:.1f}",
                    compiled[*longest].name, 1e6 * listed, 1e6 * alone),
        ""};
  viewers.show("loops", tiling.tree, tiling.tree.name);
  const bool overlaps = should_overlap(tiling.tiled.program, tiling.tree, seconds, target);
  if (overlaps) await_predecessors(tiling.tiled.program);
  check_after(tiling.tiled.program, "tiling");
  std::vector<bool> early;
  for (size_t t = 0; t < tiling.tree.tensors.size(); ++t)
    early.push_back(overlaps && std::ranges::all_of(forms, [&](const LoopTree* form) {
                      return unwritten[form->tensors[t].node.index];
                    }));
  Kernel kernel = lower_shown(tiling.tiled.program, target, viewers, overlaps ? &early : nullptr);
  kernel.members = static_cast<int64_t>(members.size());
  kernel.member_sizes = std::move(sizes);
  if (kernel.resident || parameter_bytes(kernel, kernel.members) > kMostParameterBytes)
    return Refusal{&codes::kUnlike, "a launch cannot pass the memory of all members", ""};
  check_after(kernel, "joining");
  return kernel;
}

// Replaces launches whose members differ in their sizes by launches of one kernel for all of them.
// Where there is no such kernel, equal kernels are launched together.
void join_lists(Launches& launches, std::vector<CompiledFusion>& compiled,
                const std::vector<KernelKey>& keys, const ListForms& lists,
                const std::vector<bool>& unwritten, const Target& target, PhaseViewers& viewers) {
  const auto differ = [&](const std::vector<size_t>& members) {
    return std::ranges::any_of(
        members, [&](size_t k) { return keys[k].text != keys[members.front()].text; });
  };
  const unsigned threads = viewers.any() ? 1 : count_cores();
  std::vector<std::vector<std::vector<size_t>>> parts(launches.members.size());
  std::vector<std::string> codes(parts.size());
  parallel_for(parts.size(), threads, [&](size_t n) {
    const std::vector<size_t>& members = launches.members[n];
    if (!differ(members)) {
      parts[n] = {members};
      return;
    }
    auto made = list_kernel(members, compiled, lists, unwritten, target, viewers);
    if (auto* kernel = std::get_if<Kernel>(&made)) {
      codes[n] = "list " + kernel->name;
      parts[n] = {members};
      for (const size_t k : members) {
        compiled[k].parameters.clear();
        for (const LoopTensor& tensor : lists.forms[k]->tensors)
          compiled[k].parameters.push_back(tensor.node);
      }
      compiled[members.front()].kernel = std::move(*kernel);
      return;
    }
    const Refusal& refusal = std::get<Refusal>(made);
    viewers.show({"refusal", compiled[members.front()].name,
                  [&] { return fmt::format("list: {}: {}\n", refusal.code->name, refusal.why); }});
    std::map<std::string_view, std::vector<size_t>> equal;
    for (const size_t k : members) equal[keys[k].text].push_back(k);
    for (auto& [key, same] : equal) parts[n].push_back(std::move(same));
    std::ranges::sort(parts[n]);
  });
  Launches out;
  for (size_t n = 0; n < parts.size(); ++n)
    for (std::vector<size_t>& members : parts[n]) {
      out.members.push_back(std::move(members));
      out.codes.push_back(codes[n]);
    }
  launches = std::move(out);
}

// Decides what is launched together, and gives equal kernels the text of one of them.
Launches launches_of(const LoopForms& forms, std::vector<CompiledFusion>& compiled,
                     std::vector<KernelKey> keys, const ListForms& lists,
                     const std::vector<bool>& unwritten, const Updates& updates,
                     const Target& target, const CompileOptions& options, PhaseViewers& viewers) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < compiled.size(); ++i) {
    const bool is_kernel = !keys[i].text.empty();
    texts.push_back(!options.fuse ? ""
                    : is_kernel   ? keys[i].text
                                : collective_key(forms.graph(), compiled[i].fusion.nodes.front()));
  }
  Launches out{launch_order(forms, compiled, texts, lists.keys, updates, target), {}};
  join_lists(out, compiled, keys, lists, unwritten, target, viewers);
  std::unordered_map<std::string_view, size_t> first;  // by the text of a key: its first fusion
  for (size_t n = 0; n < out.members.size(); ++n) {
    const std::vector<size_t>& members = out.members[n];
    if (!out.codes[n].empty()) continue;  // a list
    for (const size_t k : members) {
      // The simulator's reports name values, so there only members of a launch share a kernel.
      const size_t equal =
          target.simulated ? members.front() : first.emplace(keys[k].text, k).first->second;
      if (equal != k && !keys[k].text.empty())
        take_kernel(compiled[k], keys[k], compiled[equal], keys[equal]);
    }
  }
  for (size_t n = 0; n < out.members.size(); ++n) {
    const std::vector<size_t>& members = out.members[n];
    const std::string& key = keys[members.front()].text;
    if (!out.codes[n].empty() || key.empty()) continue;
    const std::string& code = target.simulated ? compiled[members.front()].name : key;
    out.codes[n] = fmt::format("{}members {}", code, members.size());
  }
  parallel_for(out.members.size(), [&](size_t n) {
    const std::vector<size_t>& members = out.members[n];
    Kernel& kernel = compiled[members.front()].kernel;
    if (members.size() == 1 || out.codes[n].empty() || !kernel.member_sizes.empty()) return;
    kernel = joined(std::move(kernel), members.size());
    check_after(kernel, "joining");
  });
  return out;
}

// A kernel before it is scheduled.
struct Unscheduled {
  LoopTree tree;
  /// The first kernel whose tree is alike. Its steps, tiles and code serve this kernel too.
  size_t like = 0;
};

// The first trees of all kernels. Where somebody observes the compilation, or reads the names of
// values in reports of the simulator, each kernel is like itself only. So is a kernel with a
// schedule that the user gave. `unwritten` tells kernels apart that load other parameters early.
std::vector<Unscheduled> first_trees(const std::vector<TilingRequest>& requests, bool may_share,
                                     const std::vector<bool>& unwritten,
                                     const CompileOptions& options) {
  std::vector<Unscheduled> out(requests.size());
  std::vector<std::optional<std::string>> texts(requests.size());
  parallel_for(requests.size(), [&](size_t i) {
    const TraceSpan span("lowering", "tree", requests[i].name);
    out[i].tree = first_tree(requests[i]);
    if (may_share && !given_schedule(options, requests[i].name))
      texts[i] = text_without_names(out[i].tree);
    if (texts[i] && !unwritten.empty())
      for (const LoopTensor& tensor : out[i].tree.tensors)
        *texts[i] += unwritten[tensor.node.index] ? " unwritten" : " written";
  });
  std::unordered_map<std::string_view, size_t> first;  // by text
  for (size_t i = 0; i < out.size(); ++i)
    out[i].like = texts[i] ? first.emplace(*texts[i], i).first->second : i;
  return out;
}

// Gives `fusion`, whose first tree is `tree`, what was made from `other`, whose first tree is like
// it.
void take_alike(CompiledFusion& fusion, const LoopTree& tree, const CompiledFusion& other,
                const LoopTree& other_tree, const LoopTreeSteps& steps) {
  fusion.tree = other.tree;
  for (const LoopTensor& tensor : tree.tensors) fusion.tensors.push_back(tensor.node);
  fusion.parameters = fusion.tensors;
  fusion.kernel = other.kernel;
  fusion.kernel.name = fusion.name;
  fusion.kernel.schedule = to_text(renamed(steps, other_tree, tree));
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

// The forms of kernels that may become one launch although they differ in their sizes: on a GPU,
// where nobody gave a schedule for them. `like` says of each kernel whose first tree its own is
// like.
ListForms list_forms(const std::vector<Unscheduled>& first, const std::vector<size_t>& kernels,
                     const std::vector<CompiledFusion>& compiled, const Target& target,
                     const CompileOptions& options) {
  ListForms out{std::vector<std::optional<LoopTree>>(compiled.size()),
                std::vector<std::string>(compiled.size())};
  if (target.kind != TargetKind::Gpu || !options.fuse || kernels.size() < 2) return out;
  const auto each = [&](bool alike, const auto& visit) {
    parallel_for(kernels.size(), [&](size_t n) {
      if ((first[n].like != n) == alike && !given_schedule(options, compiled[kernels[n]].name))
        visit(n);
    });
  };
  each(false, [&](size_t n) {
    LoopTree form = list_form(first[n].tree);
    auto key = list_key(form);
    if (std::holds_alternative<Refusal>(key)) return;
    out.keys[kernels[n]] = std::get<std::string>(std::move(key));
    out.forms[kernels[n]] = std::move(form);
  });
  each(true, [&](size_t n) {
    const size_t like = kernels[first[n].like];
    if (!out.forms[like]) return;
    out.keys[kernels[n]] = out.keys[like];
    LoopTree& form = out.forms[kernels[n]].emplace(*out.forms[like]);
    for (size_t t = 0; t < form.tensors.size(); ++t)
      form.tensors[t].node = first[n].tree.tensors[t].node;
  });
  return out;
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
  const std::vector<std::string> names = kernel_names(graph, parts.fusions);
  check_scheduled_names(options, names);
  const auto is_kernel = [&](const Fusion& fusion) {
    return !is_whole_launch(forms, fusion.nodes.front());
  };
  const unsigned threads = viewers.any() ? 1 : count_cores();
  const Updates updates = decide_updates(forms, parts.fusions, target);
  const std::vector<bool> relaxed = relaxed_nodes(graph, options.precision);
  const std::vector<bool> coarse = coarse_nodes(graph);
  const std::vector<bool> powers = approximate_powers(graph);
  const bool strict = options.precision == Precision::Strict;
  const std::vector<bool> unwritten =
      can_overlap(target) ? unwritten_nodes(graph) : std::vector<bool>();
  std::vector<CompiledFusion> compiled(parts.fusions.size());
  std::vector<KernelKey> keys(compiled.size());
  std::vector<TilingRequest> requests;
  std::vector<size_t> kernels;  // the places of their Fusions
  for (size_t i = 0; i < compiled.size(); ++i) {
    CompiledFusion& out = compiled[i];
    out.fusion = parts.fusions[i];
    out.name = names[i];
    out.seconds = parts.costs[i].seconds;
    if (!is_kernel(out.fusion)) continue;
    kernels.push_back(i);
    requests.push_back({forms, out.fusion, target, names[i], updates.aliases[i],
                        strict ? nullptr : &relaxed, strict ? nullptr : &coarse,
                        strict ? nullptr : &powers});
  }
  const std::vector<Unscheduled> first =
      first_trees(requests, !viewers.any() && !target.simulated, unwritten, options);
  std::vector<LoopTreeSteps> steps(kernels.size());
  progress.emplace("compiling " + source.name(), "kernel", kernels.size());
  const auto each_kernel = [&](bool alike, const auto& visit) {
    parallel_for(kernels.size(), threads, [&](size_t n) {
      if ((first[n].like != n) != alike) return;
      visit(n, compiled[kernels[n]]);
      progress->advance();
    });
  };
  each_kernel(false, [&](size_t n, CompiledFusion& out) {
    refuse_schedule_if_broken(out.name, options, [&] {
      TreeTiling tiling = tiled_kernel(requests[n], first[n].tree, options, viewers);
      out.tree = std::make_shared<const LoopTree>(std::move(tiling.tree));
      out.tensors = out.parameters = std::move(tiling.tiled.parameters);
      steps[n] = std::move(tiling.steps);
      const bool overlaps = should_overlap(tiling.tiled.program, *out.tree, out.seconds, target);
      if (overlaps) await_predecessors(tiling.tiled.program);
      check_after(tiling.tiled.program, "tiling");
      std::vector<bool> early;
      for (const NodeId node : out.parameters) early.push_back(overlaps && unwritten[node.index]);
      out.kernel = lower_shown(tiling.tiled.program, target, viewers, overlaps ? &early : nullptr);
      check_after(out.kernel, "lowering");
      keys[kernels[n]] = key_of(out);
    });
  });
  each_kernel(true, [&](size_t n, CompiledFusion& out) {
    const size_t like = first[n].like;
    take_alike(out, first[n].tree, compiled[kernels[like]], first[like].tree, steps[like]);
    keys[kernels[n]] = keys[kernels[like]];
  });
  const Launches launches = in_span("pass", "order", {}, [&] {
    const ListForms lists = list_forms(first, kernels, compiled, target, options);
    return launches_of(forms, compiled, std::move(keys), lists, unwritten, updates, target, options,
                       viewers);
  });
  for (size_t n = 0; n < launches.members.size(); ++n) {
    const Kernel& kernel = compiled[launches.members[n].front()].kernel;
    if (kernel.members > 1) viewers.show("kernel", kernel, kernel.name);
    if (!launches.codes[n].empty()) show_code(kernel, target, options, viewers);
  }
  progress.reset();
  generate_all(compiled, launches, target, options, codes, source.name());
  if (apart)
    *apart = single_launches(with_locations(graph, locations), compiled, launches.members, updates,
                             target, options.precision);
  Program program = in_span(
      "pass", "plan", {}, [&] { return plan(forms, compiled, launches.members, updates, target); });
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

// With BRAZE_DUMP, every compilation of the process has a folder of its own.
std::string dump_folder(const std::string& name, const CompileOptions& options) {
  if (!options.dump_folder.empty()) return options.dump_folder;
  const auto folder = read_env(kEnvDump);
  if (!folder || folder->empty()) return {};
  static std::atomic<int> compilations = 0;
  return (std::filesystem::path(*folder) / fmt::format("{:03}-{}", compilations++, name)).string();
}

// --- What somebody typed -------------------------------------------------------------------------

std::string_view described(TargetKind kind) { return kind == TargetKind::Gpu ? "GPU" : "CPU"; }

[[noreturn]] void fail_target(const KernelCode& code, const Target& target, std::string_view why,
                              std::string_view fix, SourceLocation where = {}) {
  fail(codes::kKernelTarget, fmt::format("@{} cannot run on {}: {}", code.name, target.name, why),
       {.location = where, .node = "", .fix = std::string(fix)});
}

// A kernel names the machine for which it was made. Another machine can run it too, if it is of the
// same kind and has everything that the kernel uses.
void check_target(const Kernel& kernel, const Target& target) {
  if (target.kind == TargetKind::Interpreter)
    fail_target(kernel, target, "it is a kernel, and the interpreter runs graphs and tile programs",
                "use the device \"cpu\" or \"sim:cpu\"");
  const Target made_for = find_target(kernel.target).value();
  if (made_for.kind != target.kind)
    fail_target(
        kernel, target,
        fmt::format("this kernel was made for {}, a {}", made_for.name, described(made_for.kind)),
        fmt::format("use the option --target {0}, or the device \"sim:{0}\"", made_for.name));
  Kernel here = kernel;
  here.target = target.name;
  const std::vector<Diagnostic> findings = verify(here);
  if (findings.empty()) return;
  fail_target(kernel, target, findings.front().message,
              fmt::format("this kernel was made for {}", made_for.name), findings.front().location);
}

void check_target(const TileProgram& tile, const Target& target) {
  if (!tile.pipelined || target.asynchronous_dots) return;
  fail_target(tile, target, "pipelined tile programs need asynchronous copies and products",
              "use the option --target sm_90a, or the device \"sim:sm_90a\" or \"interpreter\"");
}

// Whether a tile program fits the machine is known only when its kernel exists.
void check_lowered(const TileProgram& tile, const Kernel& kernel, const Target& target) {
  const std::vector<Diagnostic> findings = verify(kernel);
  if (findings.empty()) return;
  const Diagnostic& first = findings.front();
  fail(codes::kTileKernel,
       fmt::format("the tile program @{} cannot become a kernel for {}: {}", tile.name, target.name,
                   first.message),
       {.location = first.location,
        .node = first.context,
        .fix = "use fewer resources of a block or thread; `braze inspect --stage=kernel` shows the "
               "kernel"});
}

// A code generator or an assembler finds what the verifiers cannot know. For a kernel that was made
// from a graph this is a bug of Braze; for a kernel that the user gave, the error says that it
// cannot be compiled.
template <class Make>
Program refused_as_typed(const KernelCode& code, const Target& target, Make&& make) {
  try {
    return make();
  } catch (const Error& error) {
    for (const Code* refusal : {&codes::kLlvmRefused, &codes::kNvrtcRefused, &codes::kPtxRefused}) {
      if (&error.code() != refusal) continue;
      fail(
          codes::kNoMachineCode,
          fmt::format("@{} cannot become code for {}: {}", code.name, target.name, error.message()),
          {.location = error.location(), .node = error.node(), .fix = ""});
    }
    throw;
  }
}

Program kernel_program(const KernelCode& signature, const Kernel& kernel, const Target& target,
                       const CompileOptions& options, PhaseViewers& viewers) {
  return refused_as_typed(signature, target, [&] {
    show_code(kernel, target, options, viewers);
    Program program = plan(signature, kernel, generate(kernel, target, options), target);
    program.report = fmt::format("kernel {}: as typed\n", kernel.name);
    viewers.show("program", program);
    return program;
  });
}

// Runs `make` and records its time.
template <class Make>
Program timed(const std::string& name, const Target& target, Make&& make) {
  TraceSpan span("compile", "compile", name);
  if (span) span.add("target", target.simulated ? "sim:" + target.name : target.name);
  WallClock clock;
  Program program = make();
  program.compile_seconds = clock.lap();
  return program;
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
    PhaseViewers viewers(dump_folder(graph.name(), options), options);
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

Program compile(const TileProgram& tile, const Target& target, const CompileOptions& options) {
  return timed(tile.name, target, [&] {
    fail_if_any(verify(tile), fmt::format("the tile program {}", quote(tile.name)));
    PhaseViewers viewers(dump_folder(tile.name, options), options);
    if (target.kind == TargetKind::Interpreter) {
      viewers.show("tile", tile, tile.name);
      return plan(tile, Kernel{tile}, {"tile", tile.name, to_text(tile), {}}, target);
    }
    check_target(tile, target);
    const Kernel kernel = lower_shown(tile, target, viewers);
    check_lowered(tile, kernel, target);
    return kernel_program(tile, kernel, target, options, viewers);
  });
}

Program compile(const Kernel& kernel, const Target& target, const CompileOptions& options) {
  return timed(kernel.name, target, [&] {
    fail_if_any(verify(kernel), fmt::format("the kernel {}", quote(kernel.name)));
    check_target(kernel, target);
    PhaseViewers viewers(dump_folder(kernel.name, options), options);
    viewers.show("kernel", kernel, kernel.name);
    return kernel_program(kernel, kernel, target, options, viewers);
  });
}

}  // namespace braze
