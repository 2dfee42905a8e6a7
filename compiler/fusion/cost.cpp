#include "compiler/fusion/cost.h"

#include <algorithm>

#include "compiler/loops/build.h"
#include "compiler/loops/cost.h"
#include "compiler/loops/emit.h"
#include "compiler/loops/rules/facts.h"
#include "compiler/loops/rules/rules.h"
#include "compiler/loops/tile_loops.h"
#include "compiler/tiling/tile.h"
#include "ir/support/text.h"
#include "ir/target/features.h"
#include "ir/tile/verify.h"

namespace braze {

namespace {

// The share of the machine's multiply-add rate that contractions reach.
constexpr double kContractionEfficiency = 0.8;
// Matrix units multiply 16-bit numbers this much faster than vector units multiply.
constexpr double kMatrixSpeed = 14;
// The shorter one of memory time and compute time is hidden by the longer one, except for this
// share.
constexpr double kNotOverlapped = 0.25;

// The number of tile elements that must be under way to keep the memory busy for one
// multiprocessor. With 4.8 TB/s and a latency of 0.6 us, each of 132 multiprocessors must have
// asked for 20 KiB, and an element has 4 bytes.
constexpr double kElementsToFill = 5120;

double extent_product(const std::vector<SpaceAxis>& axes) {
  double n = 1;
  for (const SpaceAxis& axis : axes)
    n *= static_cast<double>(std::max<int64_t>(axis.extent.range().max, 1));
  return n;
}

double bytes_of(const Graph& graph, NodeId node) {
  const TensorType& type = graph[node].type;
  return static_cast<double>(type.shape.numel().range().max) *
         static_cast<double>(size_of(type.dtype));
}

// How many accumulators of a GPU's thread share what is computed for a factor: along the lanes, and
// along the other axes of a tile.
struct RegisterBlock {
  double lanes = 1, rows = 1;
};

RegisterBlock register_block(const Schedule& schedule) {
  RegisterBlock block;
  for (size_t p = 0; p < schedule.tile.size(); ++p) {
    const bool lane = static_cast<int64_t>(p) == schedule.lane_axis;
    (lane ? block.lanes : block.rows) *= static_cast<double>(schedule.tile[p]);
  }
  const auto share = [](double elements, int64_t threads) {
    return std::max(elements / static_cast<double>(threads), 1.0);
  };
  const std::vector<int64_t>& threads = schedule.threads;
  block.lanes = share(block.lanes, threads.back());
  if (threads.size() > 1) block.rows = share(block.rows, threads.front());
  return block;
}

bool any_uses(const std::vector<Expr>& at, const SpaceAxis& axis) {
  return std::any_of(at.begin(), at.end(),
                     [&](const Expr& e) { return e.uses(axis.symbol.symbol_name()); });
}

// The number of operations for one element of a contraction on a GPU. The unit is its multiply-adds
// (2 operations). The cost of computing a factor is shared by the accumulators of a block.
double contraction_flops(const LoopForms& forms, const Fusion& fusion, const Space& space,
                         const SpaceTask& task, const Schedule& schedule) {
  const auto lane = static_cast<size_t>(schedule.lane_axis);
  const RegisterBlock block = register_block(schedule);
  const LoopForm& form = *forms.find(task.node);
  std::unordered_map<std::string, Expr> bindings;
  for (size_t i = 0; i < task.at.size(); ++i) bindings.emplace("d" + std::to_string(i), task.at[i]);
  for (size_t i = 0; i < task.reduction.size(); ++i)
    bindings.emplace("r" + std::to_string(i), task.reduction[i]);
  double instructions = block.rows * block.lanes;
  for (const BodyStep& step : form.body) {
    if (step.kind != BodyStep::Kind::Load) continue;
    SpaceTask factor{forms.graph()[task.node].operands[step.operand], {}, {}};
    for (const Expr& e : step.index) factor.at.push_back(e.substitute(bindings));
    const PassTrace traced = trace(forms, fusion, factor);
    const bool along_lanes = any_uses(factor.at, space.parallel[lane]);
    const double extra_loads = static_cast<double>(traced.loads.size()) - 1;
    instructions +=
        (traced.flops + std::max(extra_loads, 0.0)) * (along_lanes ? block.lanes : block.rows);
  }
  return 2 * instructions / (block.rows * block.lanes);
}

double count_instances(const Space& space, const Schedule& schedule) {
  double instances = static_cast<double>(std::max<int64_t>(schedule.split, 1));
  for (size_t p = 0; p < space.parallel.size(); ++p)
    instances *= static_cast<double>(
        (std::max<int64_t>(space.parallel[p].extent.range().max, 1) + schedule.block[p] - 1) /
        schedule.block[p]);
  return instances;
}

// The share of the machine that the instances keep busy.
double busy_share(double instances, double tile, const Target& target) {
  const double cores = std::max(target.cores, 1);
  const double busy = std::min(instances / cores, 1.0);
  if (target.kind != TargetKind::Gpu) return busy;
  return std::min(busy, instances * tile / (cores * kElementsToFill));
}

// Every instance of a placed reduction compares all places with its own, one vector of places at a
// time, and begins with the value to which the terms are added.
double placing_flops(const LoopForms& forms, const Fusion& fusion, const Space& space,
                     const Target& target, double instances) {
  constexpr double kCompareOperations = 4;  // for a vector of places
  const Pass& pass = space.passes[space.placed->pass];
  const PassTrace start = trace(forms, fusion, start_of(forms, pass.reduces.front()));
  return extent_product(space.parallel) * (start.flops + 1) +
         instances * extent_product(pass.inner) * kCompareOperations / target.vector_lanes(8);
}

// The work of the passes of a kernel.
struct Work {
  double flops = 0, seconds = 0;  // time of computing on the whole machine
  double cached_again = 0;        // bytes of later passes that only the shared cache holds
  double read_again = 0;          // bytes of later passes that the shared cache does not hold
};

Work work_of(const TilingRequest& request, const Space& space, const Schedule& schedule,
             double instances) {
  const LoopForms& forms = request.forms;
  const Fusion& fusion = request.fusion;
  const Target& target = request.target;
  const bool contraction = schedule.family == "dot";
  const double rows_at_once = std::min(instances, static_cast<double>(target.cores));
  // On a CPU, what is the same along vectors is computed once. Each thread of a GPU computes it for
  // itself.
  std::string lane;
  double vectors_a_block = 1;
  if (target.kind == TargetKind::Cpu && schedule.lane_axis >= 0) {
    const auto axis = static_cast<size_t>(schedule.lane_axis);
    lane = space.parallel[axis].symbol.symbol_name();
    vectors_a_block =
        std::max(static_cast<double>(schedule.block[axis]) / target.vector_lanes(4), 1.0);
  }
  const std::vector<SharedValue> shared =
      space.passes.size() > 1 ? shared_values(forms, fusion, space) : std::vector<SharedValue>{};
  std::vector<SharedValue> kept;
  Work work;
  if (space.placed) {
    work.flops = placing_flops(forms, fusion, space, target, instances);
    work.seconds = work.flops / elementwise_rate(target);
  }
  for (size_t n = 0; n < space.passes.size(); ++n) {
    for (const SharedValue& value : shared)
      if (value.first_pass + 1 == n) kept.push_back(value);
    const Pass& pass = space.passes[n];
    const double elements = extent_product(axes_of(space, n));
    const PassTrace traced = trace(forms, fusion, pass, kept, lane);
    double flops = traced.flops;
    if (pass.inner.empty()) flops += traced.uniform_flops / vectors_a_block;
    if (contraction && n == 0)
      flops = contraction_flops(forms, fusion, space, pass.reduces.front(), schedule);
    const double rate = contraction && n == 0 ? target.flops_per_second * kContractionEfficiency
                                              : elementwise_rate(target);
    work.flops += elements * flops;
    work.seconds += elements * flops / rate;

    double bytes = 0;  // bytes of an element; what is the same for a whole row is read once
    for (const MemoryAccess& load : traced.loads)
      if (std::ranges::any_of(pass.inner,
                              [&](const auto& axis) { return any_uses(load.at, axis); }))
        bytes += static_cast<double>(size_of(forms.graph()[load.node].type.dtype));
    double row_bytes = bytes * extent_product(pass.inner);  // also the rows beside it in a tile
    for (const int64_t extent : schedule.tile) row_bytes *= static_cast<double>(extent);
    if (n == 0 || row_bytes <= static_cast<double>(target.l2_bytes)) continue;
    const bool cached = row_bytes * rows_at_once <= static_cast<double>(target.l3_bytes);
    (cached ? work.cached_again : work.read_again) += bytes * elements;
  }
  return work;
}

// Data that fits into the shared cache is there already because of the kernel before, or remains
// there for its next use. `cached` are further bytes that come from the cache, and `again` are
// bytes that are read again and come from memory.
double moving_seconds(double bytes, const Target& target, double cached = 0, double again = 0) {
  const double resident = std::min(bytes, static_cast<double>(target.l3_bytes));
  return (resident + cached) / target.cache_bytes_per_second +
         (bytes - resident + again) / target.memory_bytes_per_second;
}

// What a loop tree makes of the passes of a space.
struct SeveralPasses {
  /// The share of the passes after the first that really read again what the first has read. A tree
  /// keeps what fits and may walk once for several passes.
  double read_again = 1;
  double instances = 1, tile = 1;
};

bool walks_inside(const Pass& pass) { return !pass.inner.empty(); }

bool several_walks(const Space& space) {
  return std::ranges::count_if(space.passes, walks_inside) > 1;
}

// Whether the kernel walks several times in an instance, stores while it walks, or has several
// results, which need not run over the same loops. Only some of these kernels have trees that no
// rule serves.
bool may_be_unserved(const Space& space, const Fusion& fusion) {
  return fusion.outputs.size() > 1 || several_walks(space) ||
         std::ranges::any_of(space.passes, [](const Pass& pass) {
           return walks_inside(pass) && !pass.stores.empty();
         });
}

SeveralPasses several_passes(const LoopTree& tree, const Space& space, const Target& target) {
  const auto passes = std::ranges::count_if(space.passes, walks_inside);
  const auto walks = std::max<double>(static_cast<double>(count_walks(tree)), 1);
  const TreeWork work = work_of(tree, target);
  return {passes < 2 ? 1 : std::min((walks - 1) / static_cast<double>(passes - 1), 1.0),
          work.instances, work.tile};
}

// The cost of a tree that computes the whole fusion. Matrix units multiply `matrix_speed` times as
// fast as vector units. With `small_tiles`, it is assumed that enough instances keep all cores
// busy.
Cost cost_of(const LoopTree& tree, const Graph& graph, const Fusion& fusion, const Target& target,
             double matrix_speed, bool small_tiles) {
  const TreeWork work = work_of(tree, target);
  Cost cost;
  for (NodeId node : fusion.inputs) cost.bytes_read += bytes_of(graph, node);
  for (NodeId node : fusion.outputs) cost.bytes_written += bytes_of(graph, node);
  cost.instances = work.instances;
  cost.flops = work.operations + work.products + work.matrix_products;
  const double computing = work.operations / elementwise_rate(target) +
                           (work.products + work.matrix_products / matrix_speed) /
                               (target.flops_per_second * kContractionEfficiency);
  const double moving =
      moving_seconds(cost.bytes_read + cost.bytes_written - work.beside_products, target);
  cost.seconds = target.launch_seconds + work.slowly / target.memory_bytes_per_second +
                 (std::max(moving, computing) + kNotOverlapped * std::min(moving, computing)) /
                     (small_tiles ? 1 : std::min(cost.instances / std::max(target.cores, 1), 1.0));
  return cost;
}

// The tree of products on asynchronous matrix units, or of products on a CPU. None for other
// kernels.
std::optional<LoopTree> products_of(const LoopForms& forms, const Fusion& fusion,
                                    const Space& space, const Target& target) {
  if (target.kind == TargetKind::Cpu) {
    const bool sums = !space.running && !space.passes.empty() && !space.passes[0].inner.empty() &&
                      space.parallel.size() > 1;
    Scheduled out;
    if (sums) out.tree = build_loops(forms, fusion, "estimate");
    if (!sums || tile_products_for_cpu(out, target)) return std::nullopt;
    return std::move(out.tree);
  }
  const bool any =
      has_asynchronous_dots(target) && std::ranges::any_of(fusion.nodes, [&](NodeId n) {
        const LoopForm* form = forms.find(n);
        return form && form->is_dot;
      });
  if (!any) return std::nullopt;
  Scheduled out{build_loops(forms, fusion, "estimate")};
  if (tile_products(out, target)) return std::nullopt;
  return std::move(out.tree);
}

// How many times slower the products of this kernel are than on asynchronous matrix units, which
// could multiply them in a kernel of their own, but not in this one.
double slower_without_copies(const LoopForms& forms, const Fusion& fusion, const Target& target) {
  constexpr double kSlower = 2;
  const bool any = std::ranges::any_of(fusion.nodes, [&](NodeId node) {
    const LoopForm* form = forms.find(node);
    return form && form->is_dot && form->largest_elements() >= kLeastAsynchronousDot &&
           is_half(forms.graph()[forms.graph()[node].operands[0]].type.dtype);
  });
  return has_asynchronous_dots(target) && any ? kSlower : 1;
}

// The number of units of work that scans can keep busy: on a CPU, whole lines, because a core walks
// over them; on a GPU, tiles that keep a multiprocessor's memory busy.
double running_instances(const Space& space, const Target& target) {
  const double lines = extent_product(space.parallel);
  if (target.kind != TargetKind::Gpu) return lines;
  return std::max(lines * extent_product(space.passes[0].inner) / kElementsToFill, 1.0);
}

}  // namespace

std::string Cost::to_string() const {
  return fmt::format("{:.3g} us: {} read, {} written, {:.3g} Mflop, {} instances", seconds * 1e6,
                     bytes_text(static_cast<uint64_t>(bytes_read)),
                     bytes_text(static_cast<uint64_t>(bytes_written)), flops * 1e-6,
                     static_cast<int64_t>(instances));
}

std::optional<Cost> estimate(const LoopForms& forms, const Fusion& fusion, const Space& space,
                             const Target& target, const std::vector<bool>& relaxed) {
  if (const auto tree = products_of(forms, fusion, space, target)) {
    // On a GPU, the price is for the rate and the tiles of products without matrix units, because
    // it is compared with the prices of such products.
    const bool small_tiles = target.kind == TargetKind::Gpu;
    Cost cost = cost_of(*tree, forms.graph(), fusion, target, 1, small_tiles);
    cost.seconds += target.launch_seconds * static_cast<double>(tree->phases.size() - 1);
    return cost;
  }
  Cost cost;
  for (NodeId node : fusion.inputs) cost.bytes_read += bytes_of(forms.graph(), node);
  for (NodeId node : fusion.outputs) cost.bytes_written += bytes_of(forms.graph(), node);
  Work work;
  double tile = 1, phases = 0;
  const TilingRequest request{forms, fusion, target, "estimate"};
  if (space.running) {
    cost.instances = running_instances(space, target);
    work = work_of(request, space, {}, cost.instances);
  } else if (!is_pointwise(space)) {
    std::optional<LoopTree> tree;
    if (may_be_unserved(space, fusion)) {
      auto made = braze::schedule(build_loops(forms, fusion, "estimate", {}, &relaxed), target);
      if (std::holds_alternative<Refusal>(made)) return std::nullopt;
      tree = std::move(std::get<Scheduled>(made).tree);
    }
    const Schedule schedule = choose_schedule(request, space);
    cost.instances = count_instances(space, schedule);
    work = work_of(request, space, schedule, cost.instances);
    work.seconds *= slower_without_copies(forms, fusion, target);
    tile = static_cast<double>(schedule.inner_tile);
    for (const int64_t extent : schedule.tile) tile *= static_cast<double>(extent);
    // Passes that share one loop can be dealt to more instances, or have larger tiles, than the
    // schedule of a space has.
    const bool idle = cost.instances < target.cores;
    if (tree && (several_walks(space) || idle)) {
      const SeveralPasses by_tree = several_passes(*tree, space, target);
      work.cached_again *= by_tree.read_again;
      work.read_again *= by_tree.read_again;
      const bool larger = by_tree.instances * by_tree.tile > cost.instances * tile;
      if (by_tree.instances > cost.instances || (larger && cost.instances >= target.cores)) {
        cost.instances = by_tree.instances;
        tile = by_tree.tile;
      }
    }
    phases = schedule.split > 1 ? 1 : 0;
  } else {
    const auto made = schedule(build_loops(forms, fusion, "estimate"), target);
    const auto* scheduled = std::get_if<Scheduled>(&made);
    if (!scheduled) return std::nullopt;
    const TreeWork by_tree = work_of(scheduled->tree, target);
    cost.instances = by_tree.instances;
    tile = by_tree.tile;
    work.flops = by_tree.operations;
    work.seconds = work.flops / elementwise_rate(target);
  }
  cost.flops = work.flops;

  const double memory_seconds = moving_seconds(cost.bytes_read + cost.bytes_written, target,
                                               work.cached_again, work.read_again);
  cost.seconds = target.launch_seconds * (1 + phases) +
                 (std::max(memory_seconds, work.seconds) +
                  kNotOverlapped * std::min(memory_seconds, work.seconds)) /
                     (space.running ? std::min(cost.instances / std::max(target.cores, 1), 1.0)
                                    : busy_share(cost.instances, tile, target));
  return cost;
}

std::variant<Cost, Refusal> estimate_by_tree(const LoopForms& forms, const Fusion& fusion,
                                             const Target& target,
                                             const std::vector<bool>& relaxed) {
  auto made = tile_loops({forms, fusion, target, "estimate", {}, &relaxed});
  if (auto* refusal = std::get_if<Refusal>(&made)) return std::move(*refusal);
  const auto& tiling = std::get<TreeTiling>(made);
  // The tree is the only form of this kernel, so the target must have what its tile program needs.
  if (const auto findings = verify(tiling.tiled.program); !findings.empty())
    return Refusal{&codes::kNoEmission, findings.front().message, ""};
  return cost_of(tiling.tree, forms.graph(), fusion, target, kMatrixSpeed, false);
}

bool is_cheaper_again(const LoopForms& forms, NodeId dot, const Target& target) {
  // The dot must be this much larger than each factor, because its factors are read again.
  constexpr double kMuchLarger = 4;
  const Graph& graph = forms.graph();
  const auto elements = [&](NodeId node) {
    return static_cast<double>(graph[node].type.shape.numel().range().max);
  };
  if (!has_asynchronous_dots(target) || !is_half(graph[graph[dot].operands[0]].type.dtype))
    return false;
  for (NodeId factor : graph[dot].operands)
    if (elements(dot) < kMuchLarger * elements(factor)) return false;
  double terms = 1;
  for (const Expr& extent : forms.find(dot)->reduction)
    terms *= static_cast<double>(extent.range().max);
  const double computing =
      2 * terms / (target.flops_per_second * kMatrixSpeed * kContractionEfficiency);
  const double moving =
      2 * static_cast<double>(size_of(graph[dot].type.dtype)) / target.memory_bytes_per_second;
  return computing < moving;
}

double recompute_flops(const LoopForms& forms, const std::vector<bool>& inside, NodeId node) {
  const LoopForm* form = inside[node.index] ? forms.find(node) : nullptr;
  if (!form || form->reduces()) return 0;
  std::vector<Expr> at;
  for (size_t axis = 0; axis < form->domain.size(); ++axis)
    at.push_back(domain_symbol(axis, form->domain[axis]));
  return trace(forms, inside, SpaceTask{node, std::move(at), {}}).flops;
}

}  // namespace braze
