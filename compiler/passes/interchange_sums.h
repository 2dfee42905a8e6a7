// interchange_sums.h — sums of the results of a product become sums of another product's results.
//
// The graph alone decides where the two sums change places (ir/graph/interchange.h), whatever the
// machine is. So the reference knows where they do, and all machines compute the same.
#pragma once

#include "ir/graph/graph.h"

namespace braze {

/// The graph in which the sums of `find_interchanges` are interchanged.
Graph interchange_sums(const Graph& graph);

}  // namespace braze
