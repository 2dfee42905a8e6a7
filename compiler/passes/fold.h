// fold.h — computes nodes that depend on constants only.
#pragma once

#include "ir/graph/graph.h"

namespace braze {

/// The graph in which nodes with constant operands are replaced by the value that the interpreter
/// gives them. Broadcasts, iotas and results of more than 4,096 elements stay, because they are
/// cheaper to compute than to load.
Graph fold(const Graph& graph);

}  // namespace braze
