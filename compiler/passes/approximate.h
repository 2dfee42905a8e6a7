// approximate.h — local rewrites for fast precision, which change results slightly.
#pragma once

#include "ir/graph/graph.h"

namespace braze {

/// The graph with fewer roundings and divisions, each result within 4 ulp of the op's:
///   x / y   -> x * (1 / y)   in f32 and f64, where y is broadcast: one division for many elements
///   x * y + z -> fma(x, y, z), and the same for differences
///   (x * a) * b -> x * (a * b), for constants that both enlarge or both reduce
/// For quotients this bound holds only if the divisor is in 2^-126 .. 2^126 (f64: 2^-1022 ..
/// 2^1022).
Graph approximate(const Graph& graph);

}  // namespace braze
