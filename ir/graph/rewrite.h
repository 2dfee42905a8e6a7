// rewrite.h — copies a graph node by node. Every pass is built on this.
#pragma once

#include <functional>
#include <vector>

#include "ir/graph/graph.h"

namespace braze {

/// One node of the original graph `source`, as a pass sees it. `operands` are the nodes of `result`
/// that replace its operands; `node.operands` are those of the original.
struct Rewriting {
  const Graph& source;
  Graph& result;
  NodeId id;
  const Node& node;
  const std::vector<NodeId>& operands;

  /// Copies the node itself, on the new operands. A pass returns this if it changes nothing.
  NodeId keep() const;
};

/// Copies the nodes that are needed (needed_nodes). `rewrite` returns, for each node that is no
/// input, the node of the result that replaces it. All inputs stay, in order, and so do the names
/// and updates of outputs. A replacement without a label inherits that of the node it replaces.
Graph rewrite(const Graph& graph, const std::function<NodeId(const Rewriting&)>& rewrite);

/// `graph` without the nodes that are not needed.
Graph without_dead_code(const Graph& graph);

/// For every node of `graph`: whether an output needs it, or a node with side effects, or it is
/// one.
std::vector<bool> needed_nodes(const Graph& graph);

}  // namespace braze
