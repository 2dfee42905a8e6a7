// rewrite.h — copying a graph node by node, the frame of every pass.
#pragma once

#include <functional>
#include <vector>

#include "ir/graph/graph.h"

namespace braze {

/// One node of the original, seen by a pass. `operands` are the nodes of `result` that stand for
/// its operands; `node.operands` are the original's.
struct Rewriting {
  Graph& result;
  NodeId id;
  const Node& node;
  const std::vector<NodeId>& operands;

  /// The node itself on the new operands, which is what to return when there is nothing to change.
  NodeId keep() const;
};

/// Copies what the outputs of `graph` need. `rewrite` gives, for every node that is no input, the
/// node of the result that replaces it. Inputs all stay, in order; output names and updates too. A
/// replacement without label inherits the label of what it replaces.
Graph rewrite(const Graph& graph, const std::function<NodeId(const Rewriting&)>& rewrite);

/// `graph` without what its outputs do not need.
Graph without_dead_code(const Graph& graph);

/// For every node of `graph`: whether an output needs it.
std::vector<bool> needed_nodes(const Graph& graph);

}  // namespace braze
