// moved_axes.h — where axes go in reshapes and transposes, and windows behind these.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph/graph.h"

namespace braze {

/// For each axis of the operand of a reshape or transpose, the axis of its result that is the same
/// axis, or none if a reshape joins it with others or cuts it. Empty for other nodes.
std::vector<std::optional<int64_t>> moved_axes(const Graph& graph, NodeId node);

/// The same value as `node`, as windows of a moved operand, if it is made from windows by reshapes
/// and transposes that leave the axes and taps of the windows whole.
std::optional<NodeId> as_windows(Graph& graph, NodeId node);

}  // namespace braze
