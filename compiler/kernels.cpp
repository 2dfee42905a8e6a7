#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <variant>

#include "compiler/fusion/kernel_graph.h"
#include "compiler/kernels_p.h"
#include "compiler/loops/alike.h"
#include "compiler/loops/build.h"
#include "compiler/loops/text.h"
#include "compiler/lowering/lower.h"
#include "compiler/planning/overlap.h"
#include "ir/code/text.h"
#include "ir/graph/coarse.h"
#include "ir/graph/reference.h"
#include "ir/kernel/verify.h"
#include "ir/support/parallel.h"
#include "ir/support/progress.h"
#include "ir/tile/verify.h"

namespace braze {

namespace codes {
inline constexpr Code kNoKernel{"no-kernel", ErrorKind::InvalidArgument,
                                "A schedule is given for a kernel that does not exist."};
inline constexpr Code kBadSchedule{"bad-schedule", ErrorKind::InvalidArgument,
                                   "The text of a schedule does not make a kernel."};
}  // namespace codes

namespace {

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
  // Steps may have given another name to a tensor of the first tree.
  for (size_t t = 0; t < other.tree->tensors.size(); ++t)
    fusion.tensors.push_back(tree.tensors[other.tree->tensors[t].same.value_or(t)].node);
  fusion.parameters = fusion.tensors;
  fusion.kernel = other.kernel;
  fusion.kernel.name = fusion.name;
  fusion.kernel.schedule = to_text(renamed(steps, other_tree, tree));
}

}  // namespace

const std::string* given_schedule(const CompileOptions& options, const std::string& kernel) {
  const auto found = options.schedules.find(kernel);
  return found == options.schedules.end() ? nullptr : &found->second;
}

Kernel lower_shown(const TileProgram& program, const Target& target, PhaseViewers& viewers,
                   const std::vector<bool>* unwritten) {
  const TraceSpan span("lowering", "lower", program.name);
  viewers.show("tile", program, program.name);
  Kernel kernel = lower(program, target);
  if (unwritten) load_before_waits(kernel, *unwritten);
  viewers.show("kernel", kernel, kernel.name);
  return kernel;
}

Kernel lower_tiling(const Compilation& compilation, TreeTiling& tiling, double seconds,
                    const std::function<bool(size_t)>& is_unwritten) {
  TileProgram& program = tiling.tiled.program;
  const bool overlaps = should_overlap(program, tiling.tree, seconds, compilation.target);
  if (overlaps) await_predecessors(program);
  check_after(program, "tiling");
  std::vector<bool> early;
  for (size_t i = 0; i < tiling.tiled.parameters.size(); ++i)
    early.push_back(overlaps && is_unwritten(i));
  return lower_shown(program, compilation.target, compilation.viewers, overlaps ? &early : nullptr);
}

Kernels make_kernels(const Compilation& compilation, const Partition& parts) {
  const auto& [forms, target, options, updates, unwritten, viewers] = compilation;
  const Graph& graph = forms.graph();
  const std::vector<std::string> names = kernel_names(graph, parts.fusions);
  check_scheduled_names(options, names);
  const std::vector<bool> relaxed = relaxed_nodes(graph, options.precision);
  const std::vector<bool> coarse = coarse_nodes(graph);
  const std::vector<bool> powers = approximate_powers(graph);
  const bool strict = options.precision == Precision::Strict;
  Kernels out;
  out.fusions.resize(parts.fusions.size());
  out.keys.resize(parts.fusions.size());
  std::vector<TilingRequest> requests;
  for (size_t i = 0; i < out.fusions.size(); ++i) {
    CompiledFusion& fusion = out.fusions[i];
    fusion.fusion = parts.fusions[i];
    fusion.name = names[i];
    fusion.seconds = parts.costs[i].seconds;
    if (is_whole_launch(forms, fusion.fusion.nodes.front())) continue;
    out.numbers.push_back(i);
    requests.push_back({forms, fusion.fusion, target, names[i], updates.aliases[i],
                        strict ? nullptr : &relaxed, strict ? nullptr : &coarse,
                        strict ? nullptr : &powers});
  }
  out.first = first_trees(requests, !viewers.any() && !target.simulated, unwritten, options);
  std::vector<LoopTreeSteps> steps(requests.size());
  Progress progress("compiling " + graph.name(), "kernel", requests.size());
  const unsigned threads = viewers.any() ? 1 : count_cores();
  const auto each_kernel = [&](bool alike, const auto& visit) {
    parallel_for(requests.size(), threads, [&](size_t n) {
      if ((out.first[n].like != n) != alike) return;
      visit(n, out.numbers[n]);
      progress.advance();
    });
  };
  each_kernel(false, [&](size_t n, size_t i) {
    CompiledFusion& fusion = out.fusions[i];
    refuse_schedule_if_broken(fusion.name, options, [&] {
      TreeTiling tiling = tiled_kernel(requests[n], out.first[n].tree, options, viewers);
      fusion.kernel = lower_tiling(compilation, tiling, fusion.seconds, [&](size_t parameter) {
        return compilation.unwritten[tiling.tiled.parameters[parameter].index];
      });
      check_after(fusion.kernel, "lowering");
      fusion.tree = std::make_shared<const LoopTree>(std::move(tiling.tree));
      fusion.tensors = fusion.parameters = std::move(tiling.tiled.parameters);
      steps[n] = std::move(tiling.steps);
      out.keys[i] = key_of(fusion);
    });
  });
  each_kernel(true, [&](size_t n, size_t i) {
    const size_t like = out.first[n].like, other = out.numbers[like];
    take_alike(out.fusions[i], out.first[n].tree, out.fusions[other], out.first[like].tree,
               steps[like]);
    out.keys[i] = out.keys[other];
  });
  return out;
}

}  // namespace braze
