#include "compiler/fusion/cost.h"

#include <algorithm>

#include "compiler/tiling/tile.h"
#include "ir/support/text.h"

namespace braze {

namespace {

// Vector code reaches about this share of the machine's multiply-add rate outside contractions,
// whose operations are mostly single adds and multiplies.
constexpr double kElementwiseEfficiency = 0.25;
constexpr double kContractionEfficiency = 0.8;
// Of the shorter of memory and compute time, the share that the other does not hide.
constexpr double kNotOverlapped = 0.25;

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

// Operations an element of a contraction, with its multiply-adds (2 operations a lane, whole
// vectors) as the unit. What a factor costs to compute is paid once a tile: by vectors along the
// lanes, by scalars along the rows.
double contraction_flops(const LoopForms& forms, const Fusion& fusion, const Space& space,
                         const SpaceTask& task, const Schedule& schedule, const Target& target) {
  const auto lane = static_cast<size_t>(schedule.lane_axis);
  const double lanes = target.vector_lanes(4);
  const double width = static_cast<double>(schedule.tile[lane]);
  double rows = 1;
  for (size_t p = 0; p < schedule.tile.size(); ++p)
    if (p != lane) rows *= static_cast<double>(schedule.tile[p]);
  const LoopForm& form = *forms.find(task.node);
  std::unordered_map<std::string, Expr> bindings;
  for (size_t i = 0; i < task.at.size(); ++i) bindings.emplace("d" + std::to_string(i), task.at[i]);
  for (size_t i = 0; i < task.reduction.size(); ++i)
    bindings.emplace("r" + std::to_string(i), task.reduction[i]);
  const double vectors = width / lanes;
  double instructions = rows * vectors;
  for (const BodyStep& step : form.body) {
    if (step.kind != BodyStep::Kind::Load) continue;
    SpaceTask factor{forms.graph()[task.node].operands[step.operand], {}, {}};
    for (const Expr& e : step.index) factor.at.push_back(e.substitute(bindings));
    const PassTrace traced = trace(forms, fusion, factor);
    const std::string& symbol = space.parallel[lane].symbol.symbol_name();
    const bool along_lanes = std::any_of(factor.at.begin(), factor.at.end(),
                                         [&](const Expr& e) { return e.uses(symbol); });
    const double extra_loads = static_cast<double>(traced.loads.size()) - 1;
    instructions += (traced.flops + std::max(extra_loads, 0.0)) * (along_lanes ? vectors : rows);
  }
  return 2 * instructions / (rows * vectors);
}

}  // namespace

std::string Cost::to_string() const {
  return fmt::format("{:.3g} us: {} read, {} written, {:.3g} Mflop, {} instances", seconds * 1e6,
                     bytes_text(static_cast<uint64_t>(bytes_read)),
                     bytes_text(static_cast<uint64_t>(bytes_written)), flops * 1e-6,
                     static_cast<int64_t>(instances));
}

Cost estimate(const LoopForms& forms, const Fusion& fusion, const Space& space,
              const Target& target) {
  const Graph& graph = forms.graph();
  const TilingRequest request{forms, fusion, target, "estimate"};
  const Schedule schedule = choose_schedule(request, space);
  const bool contraction = schedule.family == "dot";
  Cost cost;
  for (NodeId node : fusion.inputs) cost.bytes_read += bytes_of(graph, node);
  for (NodeId node : fusion.outputs) cost.bytes_written += bytes_of(graph, node);

  const double outer = extent_product(space.parallel);
  double compute_seconds = 0;
  double reread = 0;  // bytes of passes after the first that the caches do not hold
  const std::vector<SharedValue> shared =
      space.passes.size() > 1 ? shared_values(forms, fusion, space) : std::vector<SharedValue>{};
  std::vector<SharedValue> kept;
  for (size_t n = 0; n < space.passes.size(); ++n) {
    for (const SharedValue& value : shared)
      if (value.first_pass + 1 == n) kept.push_back(value);
    const Pass& pass = space.passes[n];
    const double elements = outer * extent_product(pass.inner);
    const PassTrace traced = trace(forms, fusion, pass, kept);
    double flops = traced.flops, row_bytes = 0;
    for (const MemoryAccess& load : traced.loads)
      row_bytes += static_cast<double>(size_of(graph[load.node].type.dtype));
    if (contraction && n == 0)
      flops = contraction_flops(forms, fusion, space, pass.reduces.front(), schedule, target);
    cost.flops += elements * flops;
    const double efficiency =
        contraction && n == 0 ? kContractionEfficiency : kElementwiseEfficiency;
    compute_seconds += elements * flops / (target.flops_per_second * efficiency);
    const double instance_bytes = row_bytes * extent_product(pass.inner);
    if (n > 0 && instance_bytes > static_cast<double>(target.l2_bytes))
      reread += row_bytes * elements;
  }

  cost.instances = schedule.split > 1 ? static_cast<double>(schedule.split) : 1;
  for (size_t p = 0; p < space.parallel.size(); ++p)
    cost.instances *= static_cast<double>(
        (std::max<int64_t>(space.parallel[p].extent.range().max, 1) + schedule.block[p] - 1) /
        schedule.block[p]);

  const double bytes = cost.bytes_read + cost.bytes_written;
  // What fits the shared cache was left there by the kernel before, or is on its next use.
  const double resident = std::min(bytes, static_cast<double>(target.l3_bytes));
  const double memory_seconds = resident / target.cache_bytes_per_second +
                                (bytes - resident + reread) / target.memory_bytes_per_second;
  const double busy =
      std::min(cost.instances, static_cast<double>(target.cores)) / std::max(target.cores, 1);
  const double phases = (schedule.pack ? 1 : 0) + (schedule.split > 1 ? 1 : 0);
  cost.seconds = target.launch_seconds * (1 + phases) +
                 (std::max(memory_seconds, compute_seconds) +
                  kNotOverlapped * std::min(memory_seconds, compute_seconds)) /
                     busy;
  return cost;
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
