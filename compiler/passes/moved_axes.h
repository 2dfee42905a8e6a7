// moved_axes.h — where axes go in reshapes and transposes, and windows and broadcasts behind these.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph/graph.h"

namespace braze {

/// The axes that are not in `gone`, numbered as they are without those.
std::vector<int64_t> without(const std::vector<int64_t>& axes, const std::vector<int64_t>& gone);
std::vector<Expr> without(std::vector<Expr> dims, const std::vector<int64_t>& gone);

/// The innermost axis that has more than one index; none if there is none.
std::optional<int64_t> innermost_axis(const Shape& shape);

/// For each axis of the operand of a reshape or transpose, the axis of its result that is the same
/// axis, or none if a reshape joins it with others or cuts it. Empty for other nodes.
std::vector<std::optional<int64_t>> moved_axes(const Graph& graph, NodeId node);

/// `node` without the axes in `gone`, if a broadcast, perhaps behind reshapes and transposes, made
/// them, so that the elements are the same along them.
std::optional<NodeId> without_broadcast(Graph& graph, NodeId node,
                                        const std::vector<int64_t>& gone);

/// The axis along which neighbours of `node` are neighbours in the memory that movement ops read.
/// None if these ops divide the innermost axis of that memory, and for a value of one element.
std::optional<int64_t> contiguous_axis(const Graph& graph, NodeId node);

/// The product of two factors, made with the free axes of each in such an order that the one along
/// which it lies in memory comes last, and then transposed to the order that `dot` means. Matrix
/// units can store whole sectors along such an axis, and not along the few taps of windows.
NodeId dot_along_memory(Graph& graph, NodeId left, NodeId right, DotOp dot, DType dtype,
                        const SourceLocation& where);

/// The same value as `node`, as windows of a moved operand, if it is made from windows by reshapes
/// and transposes that leave the axes and taps of the windows whole.
std::optional<NodeId> as_windows(Graph& graph, NodeId node);

}  // namespace braze
