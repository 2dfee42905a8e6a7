// share_divisors.h — quotients whose divisor many elements share become products.
#pragma once

#include "ir/graph/graph.h"
#include "ir/graph/reference.h"

namespace braze {

/// The graph in which a quotient that is only summed, and whose divisor is broadcast to many
/// elements, becomes a product with the reciprocal: one division serves all these elements, and none
/// is needed if the divisor is a constant. The product has one more rounding than the quotient, and
/// is infinite where the reciprocal of a subnormal divisor is. Under strict precision the graph
/// stays as it is.
Graph share_divisors(const Graph& graph, Precision precision);

}  // namespace braze
