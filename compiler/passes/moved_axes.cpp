#include "compiler/passes/moved_axes.h"

#include <algorithm>
#include <numeric>

#include "ir/graph/axis_lists.h"
#include "ir/graph/build.h"

namespace braze {

namespace {

using MovedAxes = std::vector<std::optional<int64_t>>;

// Both shapes have the same number of elements. They are walked together, and where both walks have
// passed equally many elements, axes of equal extent are the same axis.
MovedAxes reshaped_axes(const Shape& from, const Shape& to) {
  MovedAxes out(from.rank());
  size_t i = 0, j = 0;
  while (i < from.rank() && j < to.rank()) {
    if (from[i] == to[j]) {
      out[i++] = static_cast<int64_t>(j++);
    } else if (from[i].is_constant(1)) {
      ++i;
    } else if (to[j].is_constant(1)) {
      ++j;
    } else {
      Expr left = from[i++], right = to[j++];
      while (!(left == right)) {
        const auto a = left.as_constant(), b = right.as_constant();
        if (!a || !b) return out;
        if (*a < *b) {
          if (i == from.rank()) return out;
          left *= from[i++];
        } else {
          if (j == to.rank()) return out;
          right *= to[j++];
        }
      }
    }
  }
  return out;
}

}  // namespace

std::vector<int64_t> without(const std::vector<int64_t>& axes, const std::vector<int64_t>& gone) {
  std::vector<int64_t> out;
  for (const int64_t axis : axes)
    if (std::ranges::count(gone, axis) == 0)
      out.push_back(axis - std::ranges::count_if(gone, [&](int64_t g) { return g < axis; }));
  return out;
}

std::vector<Expr> without(std::vector<Expr> dims, const std::vector<int64_t>& gone) {
  for (size_t i = dims.size(); i-- > 0;)
    if (std::ranges::count(gone, static_cast<int64_t>(i)) > 0)
      dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(i));
  return dims;
}

std::optional<int64_t> innermost_axis(const Shape& shape) {
  for (auto axis = static_cast<int64_t>(shape.rank()); axis-- > 0;)
    if (!shape[static_cast<size_t>(axis)].is_constant(1)) return axis;
  return std::nullopt;
}

std::vector<std::optional<int64_t>> moved_axes(const Graph& graph, NodeId node) {
  if (graph[node].as<ReshapeOp>())
    return reshaped_axes(graph[graph[node].operands[0]].type.shape, graph[node].type.shape);
  const auto* transpose = graph[node].as<TransposeOp>();
  if (!transpose) return {};
  MovedAxes out(transpose->permutation.size());
  for (size_t i = 0; i < out.size(); ++i)
    out[static_cast<size_t>(transpose->permutation[i])] = static_cast<int64_t>(i);
  return out;
}

std::optional<NodeId> without_broadcast(Graph& graph, NodeId id, const std::vector<int64_t>& gone) {
  const Node node = graph[id];
  Shape shape(without(node.type.shape.dims(), gone));
  if (const auto* op = node.as<BroadcastOp>()) {
    for (const int64_t axis : gone)
      if (std::ranges::count(op->axes, axis) > 0) return std::nullopt;
    const NodeId x = node.operands[0];
    if (graph[x].type.shape == shape) return x;
    return build::broadcast(graph, x, std::move(shape), without(op->axes, gone), node.location);
  }
  const MovedAxes moved = moved_axes(graph, id);
  std::vector<int64_t> below;
  for (const int64_t axis : gone) {
    const auto found = std::ranges::find(moved, std::optional(axis));
    if (found == moved.end()) return std::nullopt;
    below.push_back(found - moved.begin());
  }
  const auto x = without_broadcast(graph, node.operands[0], below);
  if (!x) return std::nullopt;
  if (const auto* transpose = node.as<TransposeOp>())
    return build::transpose(graph, *x, without(transpose->permutation, below), node.location);
  return build::reshape(graph, *x, std::move(shape), node.location);
}

std::optional<int64_t> contiguous_axis(const Graph& graph, NodeId node) {
  const bool transposes = graph[node].as<TransposeOp>();
  const bool moves = transposes || graph[node].as<ReshapeOp>();
  const auto* broadcast = graph[node].as<BroadcastOp>();
  if (!moves && !broadcast && !graph[node].as<WindowsOp>())
    return innermost_axis(graph[node].type.shape);
  const NodeId operand = graph[node].operands[0];
  // Between two transposes, which could be one, the value is in memory.
  const bool copied = transposes && graph[operand].as<TransposeOp>();
  const auto below =
      copied ? innermost_axis(graph[operand].type.shape) : contiguous_axis(graph, operand);
  if (!below) return std::nullopt;
  const auto axis = static_cast<size_t>(*below);
  if (moves) return moved_axes(graph, node)[axis];
  return broadcast ? broadcast->axes[axis] : below;
}

namespace {

// A factor of a product, and its axes.
struct FactorAxes {
  NodeId factor;
  std::vector<int64_t>&batch, &contract;
};

// Moves the axis along which the factor lies in memory behind its other free axes. Returns the
// places that its free axes had among themselves, in their new order.
std::vector<int64_t> move_run_last(Graph& graph, FactorAxes& of, const SourceLocation& where) {
  const Shape& shape = graph[of.factor].type.shape;
  const Axes free = other_axes(shape.rank(), of.batch, of.contract);
  Axes axes = axes_from(0, shape.rank()), places = axes_from(0, free.size());
  const auto run = contiguous_axis(graph, of.factor);
  const auto found = run ? std::ranges::find(free, *run) : free.end();
  if (found == free.end() || found + 1 == free.end()) return places;
  const auto place = found - free.begin();
  std::rotate(places.begin() + place, places.begin() + place + 1, places.end());
  std::rotate(axes.begin() + *run, axes.begin() + *run + 1, axes.end());
  for (std::vector<int64_t>* list : {&of.batch, &of.contract})
    for (int64_t& axis : *list) axis = std::ranges::find(axes, axis) - axes.begin();
  of.factor = build::transpose(graph, of.factor, axes, where);
  return places;
}

}  // namespace

NodeId dot_along_memory(Graph& graph, NodeId left, NodeId right, DotOp dot, DType dtype,
                        const SourceLocation& where) {
  FactorAxes x{left, dot.batch_left, dot.contract_left};
  FactorAxes y{right, dot.batch_right, dot.contract_right};
  // By axis of the product: its place in that of `dot`.
  Axes made = axes_from(0, dot.batch_left.size());
  for (FactorAxes* factor : {&x, &y}) {
    const auto first = std::ssize(made);
    for (const int64_t place : move_run_last(graph, *factor, where)) made.push_back(first + place);
  }
  const NodeId product = build::dot(graph, x.factor, y.factor, dot, dtype, where);
  if (std::ranges::is_sorted(made)) return product;
  return build::transpose(graph, product, inverse(made), where);
}

std::optional<NodeId> as_windows(Graph& graph, NodeId node) {
  if (graph[node].as<WindowsOp>()) return node;
  const MovedAxes moved = moved_axes(graph, node);
  if (moved.empty()) return std::nullopt;
  const auto found = as_windows(graph, graph[node].operands[0]);
  if (!found) return std::nullopt;
  const Node windows = graph[*found], move = graph[node];
  const auto& op = *windows.as<WindowsOp>();
  const Shape from = graph[windows.operands[0]].type.shape;
  Shape shape = move.type.shape;
  std::vector<size_t> order(op.axes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t i = 0; i < op.axes.size(); ++i) {
    const auto axis = moved[static_cast<size_t>(op.axes[i])];
    if (!axis || !moved[static_cast<size_t>(op.taps[i])]) return std::nullopt;
    std::vector<Expr> dims = shape.dims();
    dims[static_cast<size_t>(*axis)] = from[static_cast<size_t>(op.axes[i])];
    shape = Shape(std::move(dims));
  }
  std::ranges::sort(order, {}, [&](size_t i) { return *moved[static_cast<size_t>(op.axes[i])]; });
  WindowsOp out;
  for (const size_t i : order) {
    out.axes.push_back(*moved[static_cast<size_t>(op.axes[i])]);
    out.taps.push_back(*moved[static_cast<size_t>(op.taps[i])]);
    out.strides.push_back(op.strides[i]);
    out.dilations.push_back(op.dilations[i]);
    out.gaps.push_back(op.gaps[i]);
    out.low.push_back(op.low[i]);
  }
  const NodeId x = windows.operands[0];
  const auto* transpose = move.as<TransposeOp>();
  const NodeId source = transpose
                            ? build::transpose(graph, x, transpose->permutation, move.location)
                            : build::reshape(graph, x, shape, move.location);
  return build::windows(graph, source, windows.operands[1], std::move(out), move.type.shape,
                        windows.location);
}

}  // namespace braze
