// reordered.h — values that lie in memory in another order of their axes.
//
// A graph has no layouts. A transpose that is transposed back changes no value, so it says only in
// which order the value between the two is stored. The pass `simplify` removes such pairs, and the
// pass `order_factors`, which comes later, makes new ones.
#pragma once

#include <optional>

#include "ir/graph/graph.h"

namespace braze {

/// If `node` is a transpose that undoes another one: the value between the two.
std::optional<NodeId> stored_in_other_order(const Graph& graph, NodeId node);

/// Whether a node only moves the elements of its operand 0 to other places, or leaves some out, or
/// puts a fill between them.
bool is_movement(const Node& node);

/// The first value in another order from which movement ops make a factor.
std::optional<NodeId> reordered_source(const Graph& graph, NodeId factor);

}  // namespace braze
