// inlined_size.h — how much code the inliner makes of nodes that are computed inside their users.
//
// A value that is read at several places (both halves of a concatenation, the neighbours of a
// stencil) is computed at each of them, and so are its operands. Without a bound, the code would
// grow by a factor with every level, and the walk would be as deep as the graph.
#pragma once

#include <vector>

#include "compiler/fusion/inliner.h"

namespace braze {

/// The greatest number of operations that follow each other in one body.
inline constexpr double kLongestBody = 600;
/// The greatest number of operations that a body spends on one value that it computes at several
/// places.
inline constexpr double kMostCopied = 1024;
/// The greatest number of operations of one body. A code generator needs well below a second for
/// it.
inline constexpr double kLargestBody = 1200;

/// The length of the longest chain of operations that ends in `node`. `lengths[i]` is that of node
/// i, or 0 if node i is not computed with its users.
double inlined_length(const LoopForms& forms, const std::vector<double>& lengths, NodeId node);

/// The size of the body of `node`, with all nodes that are computed inside of it: `inlined[i]` says
/// whether node i is computed with its users. Counting stops above kLargestBody.
double inlined_size(const LoopForms& forms, const std::vector<bool>& inlined, NodeId node);
/// An upper bound of the same size, without a walk, from the sizes of the operands; the size of an
/// operand that is not inlined is 0.
double most_inlined_size(const LoopForms& forms, const std::vector<double>& sizes, NodeId node);

/// Marks the nodes that would be computed at too many places unless they were roots themselves.
void add_roots_by_places(const LoopForms& forms, const std::vector<bool>& live,
                         std::vector<bool>& root);

/// Whether the bodies of a kernel of these nodes, in graph order, stay within the bounds.
bool inlines_within_bounds(const LoopForms& forms, const std::vector<NodeId>& nodes);

}  // namespace braze
