#include "compiler/passes/flatten_updates.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "ir/graph/build.h"
#include "ir/graph/rewrite.h"

namespace braze {

namespace {

// The value whose elements the node has, in the same order.
NodeId without_reshapes(const Graph& graph, NodeId node) {
  while (graph[node].as<ReshapeOp>()) node = graph[node].operands[0];
  return node;
}

// Whether a node reads the input in this shape.
bool is_read_as(const Graph& graph, NodeId input, const TensorType& type) {
  for (size_t i = 0; i < graph.size(); ++i)
    if (graph[NodeId(i)].type == type && without_reshapes(graph, NodeId(i)) == input) return true;
  return false;
}

}  // namespace

std::optional<Graph> flatten_updates(const Graph& graph) {
  std::vector<GraphOutput> outputs = graph.outputs();
  std::map<NodeId, TensorType> flat;  // by input
  for (GraphOutput& output : outputs) {
    const Node& node = graph[output.node];
    if (!output.updates || !node.as<ReshapeOp>()) continue;
    const NodeId input = graph.inputs()[*output.updates];
    const NodeId value = without_reshapes(graph, output.node);
    const TensorType& type = graph[value].type;
    if (graph[value].as<InputOp>() || !graph[input].type.shape.is_static() ||
        !is_read_as(graph, input, type))
      continue;
    flat.emplace(input, type);
    output.node = value;
  }
  if (flat.empty()) return std::nullopt;
  Graph out(graph.name());
  std::vector<NodeId> places(graph.size());
  for (const NodeId input : graph.inputs()) {
    Node node = graph[input];
    if (const auto found = flat.find(input); found != flat.end()) node.type = found->second;
    places[input.index] = out.add(std::move(node));
  }
  for (size_t i = 0; i < graph.size(); ++i) {
    Node node = graph[NodeId(i)];
    if (node.as<InputOp>()) continue;
    const NodeId root = without_reshapes(graph, NodeId(i));
    if (flat.contains(root)) {
      const NodeId place = places[root.index];
      places[i] = out[place].type == node.type
                      ? place
                      : build::reshape(out, place, node.type.shape, node.location);
      continue;
    }
    for (NodeId& operand : node.operands) {
      const NodeId place = places[operand.index];
      operand = flat.contains(operand)
                    ? build::reshape(out, place, graph[operand].type.shape, node.location)
                    : place;
    }
    places[i] = out.add(std::move(node));
  }
  for (GraphOutput& output : outputs) {
    const NodeId node = output.node;
    output.node = places[node.index];
    if (flat.contains(node))
      output.node = build::reshape(out, output.node, graph[node].type.shape, graph[node].location);
  }
  out.set_outputs(std::move(outputs));
  return without_dead_code(out);
}

}  // namespace braze
