// unroll_reductions.h — reductions of very few elements become expressions.
//
// A kernel can compute an expression at every step of a loop, but not a reduction on which the
// terms of another reduction depend. For example, the distances of pairs of points, each of which
// is a sum over three coordinates, would be stored before the least of them is found.
#pragma once

#include "ir/graph/graph.h"

namespace braze {

/// The graph in which a reduction of at most kMostUnrolled elements whose result another reduction
/// reads, as it is or after elementwise and movement ops, combines slices of its operand, first to
/// last. 16-bit floats are summed in f32, as the reduction does.
Graph unroll_reductions(const Graph& graph);

inline constexpr int64_t kMostUnrolled = 4;

}  // namespace braze
