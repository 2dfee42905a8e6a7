// fusion.h — Fusion: the nodes that become one kernel.
#pragma once

#include <string>
#include <vector>

#include "ir/graph/graph.h"

namespace braze {

/// A set of nodes computed by one kernel. Values inside that are no output never reach memory; a
/// cheap node may be computed in several Fusions.
struct Fusion {
  std::vector<NodeId> nodes;    ///< computed here, in graph order
  std::vector<NodeId> inputs;   ///< read from memory: graph inputs, constants, outputs of others
  std::vector<NodeId> outputs;  ///< written to memory
  std::vector<NodeId> after;    ///< outputs of others that exist before, though not read here
};

}  // namespace braze
