// share_divisors.h — quotients whose divisor many elements share become products.
#pragma once

#include "ir/graph/graph.h"
#include "ir/graph/reference.h"

namespace braze {

/// The graph in which values that are only summed multiply by the reciprocal of a divisor that is
/// broadcast to many elements: one division for all of them. The quotient is then off by one more
/// rounding, and infinite where the reciprocal of a subnormal divisor is. Strict graphs stay as
/// they are.
Graph share_divisors(const Graph& graph, Precision precision);

}  // namespace braze
