// simplify.h — local rewrites that change no bit of a result.
#pragma once

#include "ir/graph/graph.h"

namespace braze {

/// The graph after one sweep of the rules of simplify.cpp, operands before users. No rule
/// changes a rounding, the sign of a zero or a special value. The payloads of NaNs are unspecified.
Graph simplify(const Graph& graph);

}  // namespace braze
