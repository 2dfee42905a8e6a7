// pack_factors.h — brings factors of products into the form that matrix units need.
#pragma once

#include "ir/graph/graph.h"

namespace braze {

/// The number of uses of each element, and of terms of a sum, from which on a factor is copied only
/// so that its rows begin at lines of memory. A product of 4304 x 5880 x 9832, whose rows do not,
/// ran at 0.66 of the rate of cuBLAS on an H200.
inline constexpr double kLeastUsesOfLines = 2048;

/// The graph in which rows of factors of large 16-bit products are multiples of 16 bytes, so that
/// asynchronous copies can read them: if a factor consists of windows, its rows get zeros at their
/// end. So do the rows of other factors, if each of their elements is used often; they become
/// multiples of 128 bytes, if it is used very often.
Graph pack_factors(const Graph& graph);
/// Only the second of these, for machines without asynchronous matrix instructions: their copies
/// take 16 bytes at once too.
Graph align_factors(const Graph& graph);

}  // namespace braze
