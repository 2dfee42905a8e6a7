// share_divisors.h — turns quotients into products if many elements share the divisor.
#pragma once

#include "ir/graph/graph.h"
#include "ir/graph/reference.h"

namespace braze {

/// The graph with products instead of some quotients. It changes a quotient that is only summed or
/// rounded to 16 bits, and whose divisor is broadcast to many elements. The product is with the
/// reciprocal, so one division serves all these elements. If the divisor is a constant, no division
/// is needed. The product has one more rounding than the quotient. Where it is rounded to 16 bits,
/// a power of two brings the divisor to a size whose reciprocal is exact enough; where it is only
/// summed, it is infinite if the reciprocal of a subnormal divisor is. With strict precision the
/// graph stays as it is.
Graph share_divisors(const Graph& graph, Precision precision);

}  // namespace braze
