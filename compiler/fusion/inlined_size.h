// inlined_size.h — how much the inliner makes of nodes that are computed inside their users.
//
// A value that is wanted at several places (both halves of a concatenation, the neighbours of a
// stencil) is computed at each of them, and what it is made of as often again: without a bound the
// code would grow by a factor with every level, and the walk as deep as the graph.
#pragma once

#include <vector>

#include "compiler/fusion/inliner.h"

namespace braze {

/// Operations that follow each other in one body, at most.
inline constexpr double kLongestBody = 600;
/// Operations that a body spends on one value that it computes at several places, at most.
inline constexpr double kMostCopied = 1024;
/// Operations of one body, at most: what a code generator takes well below a second for.
inline constexpr double kLargestBody = 1200;

/// The longest chain of operations that ends in `node`, given those of its operands that are
/// computed with it: `lengths[i]` of node i, 0 if it is not.
double inlined_length(const LoopForms& forms, const std::vector<double>& lengths, NodeId node);

/// The size of the body of `node` with all that is computed inside of it: `inlined[i]` says whether
/// node i is computed with its users. Counting stops above kLargestBody.
double inlined_size(const LoopForms& forms, const std::vector<bool>& inlined, NodeId node);
/// The same without a walk, and never less, given the sizes of the operands; 0 of what is not
/// inlined.
double most_inlined_size(const LoopForms& forms, const std::vector<double>& sizes, NodeId node);

/// Marks the nodes that would be computed at too many places unless they were roots themselves.
void add_roots_by_places(const LoopForms& forms, const std::vector<bool>& live,
                         std::vector<bool>& root);

/// Whether the bodies of a kernel of these nodes, in graph order, stay within the bounds.
bool inlines_within_bounds(const LoopForms& forms, const std::vector<NodeId>& nodes);

}  // namespace braze
