// expand.h — inlines the formula rows of the elementwise table into machine and math rows.
//
// It runs early, so that later passes and code generators meet machine and math rows, and those
// formula rows that have a body of their own for the dtype. A formula of 16-bit floats is computed
// in f32 throughout and rounded once. A row with a short body for f32 becomes its formula if the
// graph computes the math rows of the formula anyway, as gradients do.
#pragma once

#include "ir/graph/graph.h"

namespace braze {

/// The graph without formula rows, except those with a body of their own.
Graph expand(const Graph& graph);

/// Adds the body of the formula row `op` on `operands`, and returns its result.
NodeId expand_formula(Graph& graph, ElementwiseOp op, const std::vector<NodeId>& operands,
                      SourceLocation where);

}  // namespace braze
