#include "compiler/passes/expand.h"

#include <algorithm>
#include <array>
#include <optional>

#include "compiler/passes/graph_emitter.h"
#include "ir/graph/coarse.h"
#include "ir/graph/rewrite.h"

namespace braze {

NodeId expand_formula(Graph& graph, ElementwiseOp op, const std::vector<NodeId>& operands,
                      SourceLocation where) {
  const DType dtype = graph[operands[0]].type.dtype;
  GraphEmitter emitter(graph, where, /*expand_formulas=*/true);
  std::array<Scalar, 3> values;
  for (size_t i = 0; i < operands.size(); ++i)
    values[i] = convert(emitter.value(operands[i]), compute_type(dtype));
  const Scalar body = info(op).body(values[0], values[1], values[2]);
  return GraphEmitter::node(convert(body, dtype));
}

namespace {

// Finds whether a graph computes the math rows of a formula anyway.
class KnownRows {
 public:
  explicit KnownRows(const Graph& graph)
      : graph_(graph), size_(graph.size()), needed_(needed_nodes(graph)) {}

  bool have_all_of(ElementwiseOp op, const Node& node) {
    // Nodes with the same operands are one node, so a body adds only what is new.
    const std::vector<NodeId> operands = node.operands;
    return !is_new(expand_formula(graph_, op, operands, node.location));
  }

 private:
  // Whether the node, or one below it, is a math row that the graph does not need.
  bool is_new(NodeId id) const {
    if (id.index < size_ && needed_[id.index]) return false;
    const MapOp* map = graph_[id].as<MapOp>();
    if (map && info(map->op).op_class == OpClass::Math) return true;
    return std::ranges::any_of(graph_[id].operands, [&](NodeId x) { return is_new(x); });
  }

  Graph graph_;
  size_t size_;
  std::vector<bool> needed_;
};

}  // namespace

Graph expand(const Graph& graph) {
  std::optional<KnownRows> known;
  return rewrite(graph, [&](const Rewriting& step) {
    const MapOp* map = step.node.as<MapOp>();
    if (!map || info(map->op).op_class != OpClass::Formula) return step.keep();
    if (has_half_body(map->op, step.node.type.dtype)) return step.keep();
    if (has_short_body(map->op, step.node.type.dtype)) {
      if (!known) known.emplace(graph);
      if (!known->have_all_of(map->op, step.node)) return step.keep();
    }
    return expand_formula(step.result, map->op, step.operands, step.node.location);
  });
}

}  // namespace braze
