// approximate.h — local rewrites for fast precision, which change results slightly.
#pragma once

#include "ir/graph/graph.h"

namespace braze {

/// The graph with fewer roundings and divisions, each result within 4 ulp of the op's:
///   x / y   -> x * (1 / y)   in f32 and f64, where y is broadcast: one division for many elements
///   x * y + z -> fma(x, y, z), and the same for differences
///   (x * a) * b -> x * (a * b), for constants that both enlarge or both reduce
/// Quotients promise that for divisors from 2^-126 to 2^126 only (f64: 2^-1022 to 2^1022).
Graph approximate(const Graph& graph);

}  // namespace braze
