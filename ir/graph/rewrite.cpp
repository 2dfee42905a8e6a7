#include "ir/graph/rewrite.h"

#include <algorithm>
#include <utility>

#include "ir/graph/build.h"

namespace braze {

namespace {

bool has_dead_code(const Graph& graph) {
  const std::vector<bool> needed = needed_nodes(graph);
  for (size_t i = 0; i < graph.size(); ++i)
    if (!needed[i] && !graph[NodeId(i)].as<InputOp>()) return true;
  return false;
}

}  // namespace

NodeId Rewriting::keep() const {
  // The type follows from the op, the types of the operands and the type itself (infer.h), so it
  // stays if these do.
  const bool same = std::ranges::equal(
      operands, node.operands, {}, [&](NodeId n) -> const TensorType& { return result[n].type; },
      [&](NodeId n) -> const TensorType& { return source[n].type; });
  if (!same) return build::rebuild(result, node, operands);
  Node copy = node;
  copy.operands = operands;
  return result.add(std::move(copy));
}

Graph rewrite(const Graph& graph, const std::function<NodeId(const Rewriting&)>& rewrite) {
  const std::vector<bool> needed = needed_nodes(graph);
  Graph result(graph.name());
  std::vector<NodeId> replacement(graph.size());
  for (const NodeId input : graph.inputs())
    replacement[input.index] = build::rebuild(result, graph[input], {});

  for (size_t i = 0; i < graph.size(); ++i) {
    const Node& node = graph[NodeId(i)];
    if (!needed[i] || node.as<InputOp>()) continue;
    std::vector<NodeId> operands;
    for (const NodeId operand : node.operands) operands.push_back(replacement[operand.index]);
    const NodeId id = rewrite({graph, result, NodeId(i), node, operands});
    if (result[id].label.empty() && !result[id].as<InputOp>()) result.set_label(id, node.label);
    replacement[i] = id;
  }

  std::vector<GraphOutput> outputs = graph.outputs();
  for (GraphOutput& output : outputs) output.node = replacement[output.node.index];
  result.set_outputs(std::move(outputs));
  // Nodes that were needed only by replaced nodes are dead now.
  return has_dead_code(result) ? without_dead_code(result) : result;
}

Graph without_dead_code(const Graph& graph) {
  return rewrite(graph, [](const Rewriting& step) { return step.keep(); });
}

std::vector<bool> needed_nodes(const Graph& graph) {
  std::vector<bool> needed(graph.size());
  for (const GraphOutput& output : graph.outputs()) needed[output.node.index] = true;
  for (size_t i = graph.size(); i-- > 0;) {
    if (has_side_effects(graph[NodeId(i)])) needed[i] = true;
    if (needed[i])
      for (const NodeId operand : graph[NodeId(i)].operands) needed[operand.index] = true;
  }
  return needed;
}

}  // namespace braze
