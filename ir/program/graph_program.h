// graph_program.h — the Program that has the Graph interpreter run a graph as it is.
#pragma once

#include "ir/graph/graph.h"
#include "ir/program/program.h"

namespace braze {

/// One launch of the whole graph, for the device "interpreter".
Program graph_program(const Graph& graph);

}  // namespace braze
