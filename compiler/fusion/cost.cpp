#include "compiler/fusion/cost.h"

#include <algorithm>

#include "compiler/tiling/tile.h"
#include "ir/support/text.h"

namespace braze {

namespace {

// Vector code reaches about this share of the machine's multiply-add rate outside contractions, whose
// operations are mostly single adds and multiplies.
constexpr double kElementwiseEfficiency = 0.25;
constexpr double kContractionEfficiency = 0.8;

double extent_product(const std::vector<SpaceAxis>& axes) {
  double n = 1;
  for (const SpaceAxis& axis : axes) n *= static_cast<double>(std::max<int64_t>(axis.extent.range().max, 1));
  return n;
}

double bytes_of(const Graph& graph, NodeId node) {
  const TensorType& type = graph[node].type;
  return static_cast<double>(type.shape.numel().range().max) * static_cast<double>(size_of(type.dtype));
}

}  // namespace

std::string Cost::to_string() const {
  return fmt::format("{:.3g} us: {} read, {} written, {:.3g} Mflop, {} instances", seconds * 1e6,
                     bytes_text(static_cast<uint64_t>(bytes_read)), bytes_text(static_cast<uint64_t>(bytes_written)),
                     flops * 1e-6, static_cast<int64_t>(instances));
}

Cost estimate(const LoopForms& forms, const Fusion& fusion, const Space& space, const Target& target) {
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
  const std::vector<SharedValue> shared = space.passes.size() > 1 ? shared_values(forms, fusion, space) : std::vector<SharedValue>{};
  std::vector<SharedValue> kept;
  for (size_t n = 0; n < space.passes.size(); ++n) {
    for (const SharedValue& value : shared)
      if (value.first_pass + 1 == n) kept.push_back(value);
    const Pass& pass = space.passes[n];
    const double elements = outer * extent_product(pass.inner);
    double flops = 0, row_bytes = 0;
    const auto add = [&](const SpaceTask& task, bool reduces) {
      const PassTrace traced = trace(forms, fusion, task, kept);
      double body = traced.flops;
      if (reduces && contraction) {
        // Everything but the product and its sum is computed once per tile of the other factor.
        const double width = static_cast<double>(*std::max_element(schedule.tile.begin(), schedule.tile.end()));
        const double narrow = static_cast<double>(std::max<int64_t>(*std::min_element(schedule.tile.begin(), schedule.tile.end()), 4));
        body = 2 + std::max(body - 2, 0.0) / std::min(width, narrow);
      }
      flops += body;
      for (const MemoryAccess& load : traced.loads) row_bytes += static_cast<double>(size_of(graph[load.node].type.dtype));
    };
    for (const SpaceTask& task : pass.reduces) add(task, true);
    for (const SpaceTask& task : pass.stores) add(task, false);
    cost.flops += elements * flops;
    const double efficiency = contraction && n == 0 ? kContractionEfficiency : kElementwiseEfficiency;
    compute_seconds += elements * flops / (target.flops_per_second * efficiency);
    const double instance_bytes = row_bytes * extent_product(pass.inner);
    if (n > 0 && instance_bytes > static_cast<double>(target.l2_bytes)) reread += row_bytes * elements;
  }

  cost.instances = schedule.split > 1 ? static_cast<double>(schedule.split) : 1;
  for (size_t p = 0; p < space.parallel.size(); ++p)
    cost.instances *= static_cast<double>((std::max<int64_t>(space.parallel[p].extent.range().max, 1) + schedule.block[p] - 1) / schedule.block[p]);

  const double bytes = cost.bytes_read + cost.bytes_written;
  const double resident = bytes < static_cast<double>(target.l2_bytes) * target.cores ? target.cache_bytes_per_second : target.memory_bytes_per_second;
  const double memory_seconds = bytes / resident + reread / target.memory_bytes_per_second;
  const double busy = std::min(cost.instances, static_cast<double>(target.cores)) / std::max(target.cores, 1);
  const double phases = (schedule.pack ? 1 : 0) + (schedule.split > 1 ? 1 : 0);
  cost.seconds = target.launch_seconds * (1 + phases) + std::max(memory_seconds, compute_seconds) / busy;
  return cost;
}

double recompute_flops(const LoopForms& forms, const std::vector<bool>& inside, NodeId node) {
  const LoopForm* form = inside[node.index] ? forms.find(node) : nullptr;
  if (!form || form->reduces()) return 0;
  const SpaceTask task{node, [&] {
    std::vector<Expr> at;
    for (size_t axis = 0; axis < form->domain.size(); ++axis) at.push_back(domain_symbol(axis, form->domain[axis]));
    return at;
  }(), {}};
  Fusion fusion;
  for (size_t i = 0; i < inside.size(); ++i)
    if (inside[i]) fusion.nodes.emplace_back(i);
  return trace(forms, fusion, task).flops;
}

}  // namespace braze
