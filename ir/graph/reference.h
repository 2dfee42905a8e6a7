// reference.h — what every correct implementation of a Graph may return.
//
// The promises: a result of an elementwise or movement op that an output can see is rounded at its
// dtype (machine rows to 0.5 ulp, math rows to 1 ulp in f32, 4 in f64, 0.5 in 16 bits); a float
// that outputs see through sums, products and contractions only may be rounded elsewhere or be 4
// ulp off; integers and bools, and the floats that they are made from, may not, whatever consumes
// them; sums and contractions accumulate in f32 (f64: in f64) in any order. What follows is carried
// through the graph: floats as a value in f64 with an interval around it; everything else as known
// or unknown, for where a comparison or conversion falls within the leeway both answers are right.
// Strict precision takes the leeway of consumed values away, fast precision gives it to all.
#pragma once

#include <span>
#include <vector>

#include "braze/precision.h"
#include "ir/graph/graph.h"
#include "ir/values/compare.h"

namespace braze {

/// The outputs of `graph` for `inputs`, with how far an implementation may be off.
std::vector<Bounded> reference(const Graph& graph, std::span<const HostTensor> inputs,
                               Precision precision = Precision::Standard);

/// For every node: whether it is a float that outputs see through sums, products and contractions
/// of floats only, so that it may be rounded elsewhere; in strict precision none may, in fast all.
std::vector<bool> relaxed_nodes(const Graph& graph, Precision precision = Precision::Standard);

}  // namespace braze
