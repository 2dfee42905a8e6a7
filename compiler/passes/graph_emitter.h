// graph_emitter.h — a ScalarEmitter whose values are nodes of a Graph.
//
// With it the bodies and gradients of elementwise.def, written over scalars, become graph nodes
// over whole tensors.
#pragma once

#include <span>
#include <vector>

#include "ir/graph/build.h"
#include "ir/ops/elementwise.h"

namespace braze {

class GraphEmitter final : public ScalarEmitter {
 public:
  /// With `expand_formulas`, formula rows become their bodies and not nodes. New nodes have the
  /// location `where`.
  GraphEmitter(Graph& graph, SourceLocation where, bool expand_formulas)
      : graph_(graph), where_(where), expand_formulas_(expand_formulas) {}

  Scalar value(NodeId node) { return {this, node.index, graph_[node].type.dtype}; }
  static NodeId node(const Scalar& scalar) { return NodeId(scalar.id()); }

  Scalar constant(DType dtype, uint64_t bits) override {
    return value(build::scalar_bits(graph_, dtype, bits, where_));
  }

  Scalar apply(ElementwiseOp op, std::span<const Scalar> operands, DType result) override {
    const ElementwiseInfo& row = info(op);
    if (expand_formulas_ && row.op_class == OpClass::Formula) {
      const auto operand = [&](size_t i) { return i < operands.size() ? operands[i] : Scalar(); };
      return row.body(operand(0), operand(1), operand(2));
    }
    std::vector<NodeId> nodes;
    for (const Scalar& operand : operands) nodes.push_back(node(operand));
    return value(build::map(graph_, op, std::move(nodes), where_, result));
  }

 private:
  Graph& graph_;
  SourceLocation where_;
  bool expand_formulas_;
};

}  // namespace braze
