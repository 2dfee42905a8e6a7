// sort_scatters.h — sorts the terms of a scatter by their places where there are many of them.
//
// Otherwise every block of a GPU looks through all places for its own, and the terms of one place
// wait for each other. Sorted, the terms of a place lie side by side: a scan that begins anew at
// each place combines them, whatever their number, and each place takes its last total.
#pragma once

#include "ir/graph/graph.h"
#include "ir/target/target.h"

namespace braze {

/// The graph without scatters that are estimated to take much longer than a sort of their terms on
/// the target, a GPU. Terms are combined in another order, and x last.
Graph sort_scatters(const Graph& graph, const Target& target);

}  // namespace braze
