#include "frontend/models/imported.h"

#include "frontend/builder/finished.h"
#include "ir/graph/build.h"
#include "ir/graph/rewrite.h"
#include "ir/graph/sizes.h"

namespace braze {

Imported finish_import(Graph& source, const std::vector<NodeId>& inputs,
                       const BoundWeights& weights, std::vector<GraphOutput> outputs) {
  source.set_outputs(outputs);
  const std::vector<bool> needed = needed_nodes(source);
  Imported out{Graph(source.name()), {}};
  std::map<NodeId, NodeId> copies;
  for (const NodeId input : inputs) copies[input] = build::rebuild(out.graph, source[input], {});
  for (size_t i = 0; i < source.size(); ++i) {
    const NodeId id(i);
    if (!needed[i] || copies.contains(id)) continue;
    const Node& node = source[id];
    std::vector<NodeId> operands;
    for (const NodeId operand : node.operands) operands.push_back(copies.at(operand));
    copies[id] = detail::rebuild_finished(out.graph, node, std::move(operands));
    if (node.as<InputOp>()) out.weights.push_back(weights.at(id));
  }
  for (GraphOutput& output : outputs) output.node = copies.at(output.node);
  out.graph.set_outputs(std::move(outputs));
  out.graph = without_dead_code(out.graph);
  check_determined(out.graph);
  return out;
}

}  // namespace braze
