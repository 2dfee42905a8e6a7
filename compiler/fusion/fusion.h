// fusion.h — Fusion: the nodes that become one kernel.
#pragma once

#include <string>
#include <vector>

#include "ir/graph/graph.h"

namespace braze {

/// A set of nodes that one kernel computes. Values inside that are not outputs never reach memory.
/// A cheap node may be computed in several Fusions.
struct Fusion {
  std::vector<NodeId> nodes;  ///< computed here, in the order of the graph
  /// Read from memory: graph inputs, constants, outputs of other Fusions.
  std::vector<NodeId> inputs;
  std::vector<NodeId> outputs;  ///< written to memory
  /// Outputs of other Fusions that must exist before this one runs, but that it does not read.
  std::vector<NodeId> after;
};

/// For each node of the graph, whether the Fusion computes it.
inline std::vector<bool> membership(const Graph& graph, const Fusion& fusion) {
  std::vector<bool> out(graph.size());
  for (const NodeId node : fusion.nodes) out[node.index] = true;
  return out;
}

}  // namespace braze
