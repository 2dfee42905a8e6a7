// pack_factors.h — factors of products as matrix units need them.
#pragma once

#include "ir/graph/graph.h"

namespace braze {

/// The graph with factors of large tf32 products transposed where their contracted axes are not the
/// innermost, for machines whose matrix units read tf32 along those only. Fusion leaves what it
/// makes in memory.
Graph pack_factors(const Graph& graph);

}  // namespace braze
