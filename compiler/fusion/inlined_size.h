// inlined_size.h — how much code the inliner makes from nodes that are computed inside their users.
//
// A value that is read at several places (both halves of a concatenation, the neighbours of a
// stencil) is computed at each of them, and so are its operands. Without a bound, each level of
// such nodes would multiply the code, and the walk would be as deep as the graph.
#pragma once

#include <vector>

#include "compiler/fusion/inliner.h"

namespace braze {

/// The greatest length of a chain of operations in one body.
inline constexpr double kLongestBody = 600;
/// The greatest number of operations that a body may spend on one value that it computes at several
/// places.
inline constexpr double kMostCopied = 1024;
/// The greatest number of operations of one body. A code generator needs much less than a second
/// for such a body.
inline constexpr double kLargestBody = 1200;

/// Measures the nodes of one graph. What each node adds by itself is counted once.
class InlinedSizes {
 public:
  explicit InlinedSizes(const LoopForms& forms);

  /// The length of the longest chain of operations that ends in `node`. `lengths[i]` is the length
  /// for node i, or 0 if node i is not computed inside its users.
  double length(const std::vector<double>& lengths, NodeId node) const;

  /// The size of the body of `node`, including all nodes that are computed inside it. `inlined[i]`
  /// says whether node i is computed inside its users. Counting stops above kLargestBody.
  double size(const std::vector<bool>& inlined, NodeId node) const;
  /// Bounds of the body of a node: its size, and its loads of what is not computed inside it.
  struct Most {
    double size = 0, loads = 1;
  };
  /// An upper bound of the same size, computed from those of the operands without a walk. The
  /// bounds of an operand that is not inlined are those of one load.
  Most most(const std::vector<Most>& operands, NodeId node) const;

  /// Marks as roots the nodes that would otherwise be computed at too many places.
  void add_roots_by_places(const std::vector<bool>& live, std::vector<bool>& root) const;

  /// Whether a kernel of these nodes, which are in the order of the graph, keeps the bounds above.
  bool within_bounds(const std::vector<NodeId>& nodes) const;

 private:
  class Places;
  struct Load {
    NodeId operand;
    bool in_place = false;  // whether it reads the operand where the node itself is computed
    double conditions = 0;  // operations of its conditions
  };
  // Of a node's own body.
  struct Own {
    bool has_form = false, reduces = false;
    double length = 0;  // index maps count, because the inliner walks through them too
    double size = 0;    // with the arithmetic of indices: an expression over many sizes is long
    std::vector<Load> loads;
  };
  const Own& own(NodeId node) const { return own_[node.index]; }

  const Graph& graph_;
  std::vector<Own> own_;
};

}  // namespace braze
