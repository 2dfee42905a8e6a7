// simplify.h — local rewrites that change no specified bit of a result.
#pragma once

#include "ir/graph/graph.h"

namespace braze {

/// The graph after one sweep of the rules of simplify.cpp, operands before users. No rule
/// changes a rounding, the sign of a zero or a special value, except that a sum of one -0 is -0:
/// the sign of a sum that is zero is unspecified, and so are the payloads of NaNs.
Graph simplify(const Graph& graph);

}  // namespace braze
