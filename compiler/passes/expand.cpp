#include "compiler/passes/expand.h"

#include <array>

#include "compiler/passes/graph_emitter.h"
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

Graph expand(const Graph& graph) {
  return rewrite(graph, [](const Rewriting& step) {
    const MapOp* map = step.node.as<MapOp>();
    if (!map || info(map->op).op_class != OpClass::Formula) return step.keep();
    if (has_half_body(map->op, step.node.type.dtype)) return step.keep();
    return expand_formula(step.result, map->op, step.operands, step.node.location);
  });
}

}  // namespace braze
