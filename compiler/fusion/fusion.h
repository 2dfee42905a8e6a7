// fusion.h — Fusion: the nodes that become one kernel.
#pragma once

#include <string>
#include <vector>

#include "ir/graph/graph.h"

namespace braze {

/// A set of nodes that one kernel computes. Values inside that are not outputs never reach memory.
/// A cheap node may be computed in several Fusions.
struct Fusion {
  std::vector<NodeId> nodes;  ///< computed here, in graph order
  std::vector<NodeId>
      inputs;  ///< read from memory: graph inputs, constants, outputs of other Fusions
  std::vector<NodeId> outputs;  ///< written to memory
  std::vector<NodeId>
      after;  ///< outputs of other Fusions that must exist before, although they are not read here
};

}  // namespace braze
