// pack_factors.h — brings factors of products into the form that matrix units need.
#pragma once

#include "ir/graph/graph.h"

namespace braze {

/// The graph in which factors of large tf32 products are transposed if their contracted axes are
/// not the innermost ones, for machines whose matrix units can read tf32 only along those. Fusion
/// leaves the transposed factors in memory. If a factor of a large 16-bit product consists of
/// windows, its rows get zeros at their end and become multiples of 16 bytes, so that asynchronous
/// copies can read them. So do the rows of other factors, if each of their elements is used often.
Graph pack_factors(const Graph& graph);
/// Only the last of these, for machines without asynchronous matrix instructions: their copies take
/// 16 bytes at once too.
Graph align_factors(const Graph& graph);

}  // namespace braze
