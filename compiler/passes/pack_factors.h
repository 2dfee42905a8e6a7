// pack_factors.h — factors of products as matrix units need them.
#pragma once

#include "ir/graph/graph.h"

namespace braze {

/// The graph in which factors of large tf32 products are transposed if their contracted axes are
/// not the innermost ones, for machines whose matrix units can read tf32 only along those. Fusion
/// leaves the transposed factors in memory. What windows show of each row of a large 16-bit product
/// becomes a row of whole 16 bytes, with zeros at its end, so that asynchronous copies can read it.
/// The rows of other factors of such products do too, if each of their elements is used often.
Graph pack_factors(const Graph& graph);

}  // namespace braze
