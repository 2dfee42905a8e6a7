#include "frontend/autodiff/gradient.h"

#include <algorithm>
#include <map>

#include "compiler/passes/expand.h"
#include "frontend/autodiff/backward_p.h"
#include "frontend/builder/builder.h"
#include "ir/graph/build.h"
#include "ir/graph/shards.h"
#include "ir/support/text.h"

namespace braze {
namespace {

/// The nodes on which `ends` depend, and `ends` themselves, in topological order, which is the
/// order of ids. The search does not go beyond `stops`.
std::vector<NodeId> ancestors(const Graph& graph, std::span<const NodeId> ends,
                              std::span<const NodeId> stops = {}) {
  std::vector<bool> reached(graph.size()), is_stop(graph.size());
  for (const NodeId end : ends) reached[end.index] = true;
  for (const NodeId stop : stops) is_stop[stop.index] = true;
  std::vector<NodeId> out;
  for (size_t i = graph.size(); i-- > 0;) {
    if (!reached[i]) continue;
    out.emplace_back(i);
    if (is_stop[i]) continue;
    for (const NodeId operand : graph[NodeId(i)].operands) reached[operand.index] = true;
  }
  std::reverse(out.begin(), out.end());
  return out;
}

/// A collective that does not combine by a sum, written as a reduction of what it gathers.
NodeId expand_collective(Graph& graph, const CollectiveOp& op, NodeId x, SourceLocation where) {
  std::vector<Expr> dims = graph[x].type.shape.dims();
  CollectiveOp moved{CollectiveKind::AllGather, op.axis};
  if (op.kind == CollectiveKind::ReduceScatter) {
    moved.kind = CollectiveKind::AllToAll;
    dims[0] = floordiv(dims[0], op.axis.size);
    dims.insert(dims.begin(), Expr(op.axis.size));
  } else {
    dims.insert(dims.begin(), Expr(1));
  }
  const NodeId rows = build::reshape(graph, x, Shape(std::move(dims)), where);
  return build::reduce(graph, op.monoid, build::collective(graph, moved, rows, where), {0}, where);
}

/// `loss`, with such a reduction for each collective that does not combine by a sum.
NodeId expand_collectives(Graph& graph, NodeId loss) {
  std::map<NodeId, NodeId> replacement;
  for (const NodeId id : ancestors(graph, {&loss, 1})) {
    const Node node = graph[id];
    std::vector<NodeId> operands;
    for (const NodeId operand : node.operands) operands.push_back(replacement.at(operand));
    const auto* collective = node.as<CollectiveOp>();
    if (collective && reduces(collective->kind) && collective->monoid != Monoid::Sum)
      replacement[id] = expand_collective(graph, *collective, operands[0], node.location);
    else
      replacement[id] = operands == node.operands ? id : build::rebuild(graph, node, operands);
  }
  return replacement.at(loss);
}

/// Gradients by node.
using NodeGradients = std::map<NodeId, NodeId>;

void add_gradient(Graph& graph, NodeGradients& gradients, NodeId node, NodeId more,
                  SourceLocation where) {
  NodeId& sum = gradients[node];
  sum = sum ? build::map(graph, ElementwiseOp::add, {sum, more}, where) : more;
}

bool recomputes(const Node& node) {
  const auto* barrier = node.as<BarrierOp>();
  return barrier && barrier->recompute;
}

/// One walk from results back to inputs. A region that is computed again for the gradients is
/// differentiated by a walk of its own.
class Walk {
 public:
  /// The walk ends at `inputs`. It makes gradients for those that are `wanted`.
  Walk(Graph& graph, NodeGradients results, std::span<const NodeId> inputs,
       const std::vector<bool>& wanted, const CustomBackward& custom)
      : graph_(graph),
        custom_(custom),
        varying_(graph),
        gradients_(std::move(results)),
        carries_(graph.size()) {
    std::vector<NodeId> ends;
    for (const auto& [result, gradient] : gradients_) ends.push_back(result);
    order_ = ancestors(graph_, ends, inputs);
    std::vector<bool> is_input(graph_.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      is_input[inputs[i].index] = true;
      carries_[inputs[i].index] = wanted[i];
    }
    std::erase_if(order_, [&](NodeId id) { return is_input[id.index]; });
    // The gradient flows through these nodes: floating values that depend on a wanted input.
    for (const NodeId id : order_) {
      const Node& node = graph_[id];
      for (const NodeId operand : node.operands)
        if (carries_[operand.index] && is_arithmetic_float(node.type.dtype))
          carries_[id.index] = true;
      if (recomputes(node)) regions_[boundary(node)].push_back(id);
    }
  }

  NodeGradients run() {
    for (auto id = order_.rbegin(); id != order_.rend(); ++id) {
      if (!carries_[id->index]) continue;
      if (recomputes(graph_[*id]))
        visit_region(*id);
      else
        visit(*id);
    }
    while (!partial_.empty()) settle(partial_.begin()->first);
    return std::move(gradients_);
  }

 private:
  using Boundary = std::vector<NodeId>;

  static Boundary boundary(const Node& barrier) {
    return {barrier.operands.begin() + 1, barrier.operands.end()};
  }

  // A value may be the same on several devices while other operands of an op differ. Then each
  // device computes only its own part of the value's gradient. When the parts are complete, they
  // are summed up over the devices.

  /// Adds `more` to the gradient of `node`. It is a part for each of the devices along `axes`.
  void add(NodeId node, NodeId more, const AxisSet& axes, SourceLocation where) {
    if (axes.empty()) return add_gradient(graph_, gradients_, node, more, where);
    for (auto& [known, sum] : partial_[node]) {
      if (known != axes) continue;
      sum = build::map(graph_, ElementwiseOp::add, {sum, more}, where);
      return;
    }
    partial_[node].emplace_back(axes, more);
  }

  NodeId summed(NodeId part, const AxisSet& axes, SourceLocation where) {
    for (const MeshAxis& axis : axes)
      part = build::collective(graph_, {CollectiveKind::AllReduce, axis}, part, where);
    return part;
  }

  void settle(NodeId node) {
    const auto parts = partial_.extract(node);
    if (parts.empty()) return;
    const SourceLocation where = graph_[node].location;
    for (const auto& [axes, part] : parts.mapped())
      add_gradient(graph_, gradients_, node, summed(part, axes, where), where);
  }

  /// Handles the gradient of a value that was gathered along a mesh axis. Each device needs only
  /// its own block of the sum over that axis, so a reduce_scatter is enough.
  void scatter(NodeId id) {
    const Node node = graph_[id];
    const auto* op = node.as<CollectiveOp>();
    const auto parts = partial_.find(id);
    if (!op || op->kind != CollectiveKind::AllGather || parts == partial_.end()) return;
    const AxisSet of_operand = united(varying_.of(node.operands[0]), {op->axis});
    std::erase_if(parts->second, [&](const auto& entry) {
      const auto& [axes, part] = entry;
      if (!contains(axes, op->axis.name)) return false;
      const NodeId block =
          build::collective(graph_, {CollectiveKind::ReduceScatter, op->axis}, part, node.location);
      add(node.operands[0], summed(block, without(axes, {op->axis}), node.location),
          without(of_operand, varying_.of(node.operands[0])), node.location);
      return true;
    });
    if (parts->second.empty()) partial_.erase(id);
  }

  /// A gradient is linear in the gradient that it comes from. So the parts can be handed on to the
  /// operand, and be summed up over the devices there, if it has no more elements. For example, the
  /// gradient of a bias is first summed over the rows that it was added to, and then over the
  /// devices.
  void hand_on(NodeId id) {
    const Node node = graph_[id];
    if (!partial_.contains(id) || node.as<CollectiveOp>() || node.as<CustomCallOp>()) return;
    if (const MapOp* map = node.as<MapOp>(); map && info(map->op).through_body) return;
    std::vector<bool> wanted;
    for (const NodeId operand : node.operands) wanted.push_back(carries_[operand.index]);
    if (std::ranges::count(wanted, true) != 1) return;
    const auto i = static_cast<size_t>(std::ranges::find(wanted, true) - wanted.begin());
    // The operand must vary along all axes along which the node does. Else its own users would have
    // to sum up more.
    if (!without(varying_.of(id), varying_.of(node.operands[i])).empty()) return;
    const TensorType& type = graph_[node.operands[i]].type;
    if (type.dtype != node.type.dtype ||
        !proves_at_most(type.shape.numel(), node.type.shape.numel()))
      return;
    const auto parts = partial_.extract(id);
    for (const auto& [axes, part] : parts.mapped())
      if (const NodeId on = autodiff::operand_gradients(graph_, id, part, wanted)[i])
        add(node.operands[i], on, axes, node.location);
  }

  void visit(NodeId id) {
    scatter(id);
    hand_on(id);
    settle(id);
    const auto gradient = gradients_.find(id);
    if (gradient == gradients_.end()) return;
    AxisSet here = varying_.of(id);
    if (const auto* op = graph_[id].as<CollectiveOp>())
      here = united(varying_.of(graph_[id].operands[0]), {op->axis});
    const std::vector<NodeId> operands = graph_[id].operands;
    const SourceLocation where = graph_[id].location;
    std::vector<bool> wanted;
    for (const NodeId operand : operands) wanted.push_back(carries_[operand.index]);
    if (std::find(wanted.begin(), wanted.end(), true) == wanted.end()) return;
    if (const MapOp* map = graph_[id].as<MapOp>(); map && info(map->op).through_body)
      return visit_body(map->op, operands, wanted, gradient->second, where);
    const std::vector<NodeId> parts =
        graph_[id].as<CustomCallOp>()
            ? custom_parts(id, gradient->second)
            : autodiff::operand_gradients(graph_, id, gradient->second, wanted);
    for (size_t i = 0; i < operands.size(); ++i)
      if (parts[i] && wanted[i])
        add(operands[i], parts[i], without(here, varying_.of(operands[i])), where);
  }

  std::vector<NodeId> custom_parts(NodeId id, NodeId gradient) const {
    if (!custom_) fail_no_gradient(graph_[id]);
    return custom_(id, gradient);
  }

  /// Differentiates a formula through its body. Only the gradient needs the body. The formula's
  /// users still read the formula itself, so nothing is computed twice if the graph already has its
  /// value.
  void visit_body(ElementwiseOp op, const std::vector<NodeId>& operands,
                  const std::vector<bool>& wanted, NodeId gradient, SourceLocation where) {
    const NodeId body = expand_formula(graph_, op, operands, where);
    for (const auto& [operand, part] :
         Walk(graph_, {{body, gradient}}, operands, wanted, custom_).run())
      for (size_t i = 0; i < operands.size(); ++i)
        if (operands[i] == operand && wanted[i]) {
          add_gradient(graph_, gradients_, operand, part, where);
          break;
        }
  }

  /// The walk meets the results of a region one by one. At the last one, the gradients of all of
  /// them exist. Only then is the region computed again, and differentiated as a whole.
  void visit_region(NodeId id) {
    const SourceLocation where = graph_[id].location;
    const Boundary inputs = boundary(graph_[id]);
    const std::vector<NodeId>& results = regions_.at(inputs);
    if (id != results.front()) return;
    std::vector<NodeId> values, given;
    for (const NodeId result : results) {
      settle(result);
      const auto gradient = gradients_.find(result);
      if (gradient == gradients_.end()) continue;
      values.push_back(graph_[result].operands[0]);
      given.push_back(gradient->second);
    }
    if (values.empty()) return;
    for (const NodeId inside : ancestors(graph_, values, inputs))
      if (const Node& node = graph_[inside]; has_side_effects(node))
        fail(codes::kNotDifferentiable,
             "grad: this call has side effects, and a checkpoint would make it again",
             {.location = node.location,
              .node = node.as<CustomCallOp>()->target,
              .fix = "make the call outside of the function that is given to checkpoint"});
    std::vector<NodeId> later;
    std::vector<bool> wanted;
    for (const NodeId input : inputs) {
      later.push_back(build::barrier(graph_, input, given, {}, where));
      wanted.push_back(carries_[input.index]);
    }
    const std::vector<NodeId> again = replace(graph_, values, inputs, later);
    NodeGradients ends;
    for (size_t i = 0; i < again.size(); ++i) add_gradient(graph_, ends, again[i], given[i], where);
    const NodeGradients parts = Walk(graph_, std::move(ends), later, wanted, custom_).run();
    for (size_t i = 0; i < inputs.size(); ++i)
      if (const auto part = parts.find(later[i]); wanted[i] && part != parts.end())
        add_gradient(graph_, gradients_, inputs[i], part->second, where);
  }

  Graph& graph_;
  const CustomBackward& custom_;
  VaryingAxes varying_;
  NodeGradients gradients_;
  /// Parts of gradients. Summed up over their axes they become gradients.
  std::map<NodeId, std::vector<std::pair<AxisSet, NodeId>>> partial_;
  std::vector<NodeId> order_;
  std::vector<bool> carries_;
  std::map<Boundary, std::vector<NodeId>> regions_;  // the results of each region, in order
};

}  // namespace

void fail_no_gradient(const Node& call) {
  const std::string& target = call.as<CustomCallOp>()->target;
  fail(codes::kNotDifferentiable,
       fmt::format("grad: no gradient is known of custom_call({})", quote(target)),
       {.location = call.location,
        .node = target,
        .fix = "give custom_call the option `gradient`, or its operands as stop_gradient(x)"});
}

std::vector<NodeId> differentiate(Graph& graph, NodeId loss, std::span<const NodeId> inputs,
                                  const CustomBackward& custom) {
  loss = expand_collectives(graph, loss);
  const NodeId one = build::scalar(graph, graph[loss].type.dtype, 1, graph[loss].location);
  const NodeGradients gradients =
      Walk(graph, {{loss, one}}, inputs, std::vector<bool>(inputs.size(), true), custom).run();
  std::vector<NodeId> out;
  for (const NodeId input : inputs) {
    const auto gradient = gradients.find(input);
    if (gradient != gradients.end()) {
      out.push_back(gradient->second);
      continue;
    }
    const TensorType type = graph[input].type;
    const NodeId zero = build::scalar(graph, type.dtype, 0, graph[input].location);
    out.push_back(build::broadcast_to(graph, zero, type.shape, graph[input].location));
  }
  return out;
}

std::vector<NodeId> replace(Graph& graph, std::span<const NodeId> values,
                            std::span<const NodeId> from, std::span<const NodeId> to) {
  std::map<NodeId, NodeId> replacement;
  for (size_t i = 0; i < from.size(); ++i) replacement[from[i]] = to[i];
  for (const NodeId id : ancestors(graph, values, from)) {
    if (replacement.contains(id)) continue;
    const Node node = graph[id];
    std::vector<NodeId> operands;
    for (const NodeId operand : node.operands) operands.push_back(replacement.at(operand));
    replacement[id] = operands == node.operands ? id : build::rebuild(graph, node, operands);
  }
  std::vector<NodeId> out;
  for (const NodeId value : values) out.push_back(replacement.at(value));
  return out;
}

}  // namespace braze
