// fold.h — computes what depends on constants only.
#pragma once

#include "ir/graph/graph.h"

namespace braze {

/// The graph with nodes of constant operands replaced by their value, as the interpreter has it.
/// Broadcasts, iotas and results of more than 4,096 elements stay: they are cheaper as they are.
Graph fold(const Graph& graph);

}  // namespace braze
