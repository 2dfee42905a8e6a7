#include "compiler/passes/product_prices.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "compiler/fusion/partition.h"
#include "compiler/loops/tile_loops.h"
#include "compiler/passes/pack_factors.h"
#include "ir/graph/build.h"
#include "ir/graph/reordered.h"
#include "ir/graph/text.h"

namespace braze {

namespace {

// Notes how the units get the factors of all products.
void note_units(const LoopTree& tree, ProductKernels& out) {
  std::set<size_t> staged;
  for (const LoopRegion& phase : tree.phases) {
    for_each_task(phase, [&](const LoopTask& task, const auto&) {
      if (task.kind == LoopTask::Kind::Stage) staged.insert(task.target);
      if (task.kind != LoopTask::Kind::Dot) return;
      out.asynchronous = out.asynchronous && task.unit == Unit::Wgmma;
      out.by_copies = out.by_copies && (task.unit == Unit::Wgmma || task.unit == Unit::Mma);
      for (const uint32_t result : task.body.results) {
        const LoopStep& factor = task.body.steps[result];
        out.by_copies =
            out.by_copies && factor.kind == LoopStep::Kind::Read && staged.contains(factor.source);
      }
    });
  }
}

Graph with_packed_factors(const Graph& graph, const Target& target) {
  return target.asynchronous_dots ? pack_factors(graph) : align_factors(graph);
}

ProductKernels kernels_of(const Graph& product, const Target& target, Precision precision) {
  const Graph graph = with_packed_factors(product, target);
  const LoopForms forms(graph);
  const Partition parts = partition(forms, target, {.precision = precision});
  ProductKernels out{.count = parts.fusions.size()};
  bool any = false;
  out.by_copies = out.asynchronous = true;
  for (size_t k = 0; k < out.count; ++k) {
    const Fusion& fusion = parts.fusions[k];
    out.seconds += parts.costs[k].seconds;
    if (std::ranges::none_of(fusion.nodes, [&](NodeId n) { return graph[n].as<DotOp>(); }))
      continue;
    any = true;
    const auto made = schedule(first_tree({forms, fusion, target, "product"}), target);
    if (const auto* scheduled = std::get_if<Scheduled>(&made))
      note_units(scheduled->tree, out);
    else
      out.by_copies = out.asynchronous = false;
  }
  out.by_copies = out.by_copies && any;
  out.asynchronous = out.asynchronous && any;
  return out;
}

}  // namespace

double seconds_of(const Graph& graph, const Target& target, Precision precision) {
  const Graph packed = with_packed_factors(graph, target);
  double out = 0;
  for (const Cost& cost : partition(LoopForms(packed), target, {.precision = precision}).costs)
    out += cost.seconds;
  return out;
}

Graph alone(const Rewriting& step) {
  Graph out("product");
  std::map<NodeId, NodeId> made;
  const std::function<NodeId(NodeId)> copy = [&](NodeId id) {
    const auto known = made.find(id);
    if (known != made.end()) return known->second;
    const Node node = step.result[id];
    NodeId copied;
    if (is_movement(node) || node.as<ConstantOp>()) {
      std::vector<NodeId> operands;
      for (const NodeId operand : node.operands) operands.push_back(copy(operand));
      copied = build::rebuild(out, node, std::move(operands));
    } else {
      copied = build::input(out, fmt::format("x{}", made.size()), node.type);
    }
    made.emplace(id, copied);
    return copied;
  };
  std::vector<NodeId> factors;
  for (const NodeId operand : step.operands) factors.push_back(copy(operand));
  out.set_outputs({{build::rebuild(out, step.node, std::move(factors)), "product", {}}});
  return out;
}

ProductKernels ProductPrices::of(const Graph& product) {
  const auto [place, added] = known_.try_emplace(to_text(product));
  if (added) place->second = kernels_of(product, target_, precision_);
  return place->second;
}

}  // namespace braze
