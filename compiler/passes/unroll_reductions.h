// unroll_reductions.h — reductions of few elements become expressions.
//
// A kernel can compute an expression at every step of a loop, but not a reduction on which the
// terms of another reduction depend. For example, the distances of pairs of points, each of which
// is a sum over three coordinates, would be stored before the least of them is found.
//
// The forces between pairs of points, which are summed for each of three coordinates, would be
// stored too, because loops over pairs and coordinates would compute the force of a pair three
// times. So the sums of the coordinates become reductions of their own, which loops over pairs
// compute together.
#pragma once

#include "ir/graph/graph.h"

namespace braze {

/// Rewrites each reduction of at most kMostUnrolled elements whose result another reduction reads
/// (directly, or through elementwise and movement ops), and of at most kMostOfLarger elements if
/// that result is larger than all from which it is made, so that it should not be in memory. The
/// reduction becomes an expression that combines slices of its operand, from the first to the last.
/// 16-bit floats are summed in f32, as in the reduction. A reduction that keeps an axis of at most
/// kMostUnrolled elements becomes one for each of them, if its operand is larger than all from
/// which it is made, and so is a value that is broadcast along this axis.
Graph unroll_reductions(const Graph& graph);

inline constexpr int64_t kMostUnrolled = 4, kMostOfLarger = 16;

}  // namespace braze
