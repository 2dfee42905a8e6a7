#include "compiler/passes/narrow_dots.h"

#include <algorithm>

#include "ir/graph/axis_lists.h"
#include "ir/graph/build.h"
#include "ir/graph/rewrite.h"

namespace braze {

namespace {

// The sizes of products that would waste a matrix unit: its tiles have at least 16 columns, and it
// takes 16 terms at once.
constexpr int64_t kMostColumns = 15;
// The number of results from which on a GPU is busy, with a few results for each thread.
constexpr int64_t kLeastResults = int64_t{1} << 21;

int64_t elements(const Shape& shape, const Axes& axes) {
  int64_t out = 1;
  for (const int64_t axis : axes) out *= shape[static_cast<size_t>(axis)].range().max;
  return out;
}

Axes joined(std::initializer_list<Axes> lists) {
  Axes out;
  for (const Axes& list : lists) out.insert(out.end(), list.begin(), list.end());
  return out;
}

std::vector<Expr> dims_of(const Shape& shape, const Axes& axes) {
  std::vector<Expr> out;
  for (const int64_t axis : axes) out.push_back(shape[static_cast<size_t>(axis)]);
  return out;
}

struct NarrowDot {
  const Rewriting& step;
  const DotOp& dot;
  Graph& graph = step.result;
  SourceLocation where = step.node.location;
  NodeId x = step.operands[0], y = step.operands[1];
  TensorType left = graph[x].type, right = graph[y].type;
  Axes rows = free_axes(dot, 0, left.shape);
  Axes columns = free_axes(dot, 1, right.shape);

  bool is_narrow() const {
    if (dot.tf32 || dot.batch_left.empty() || !left.shape.is_static() || !right.shape.is_static() ||
        left.dtype != right.dtype || !(is_half(left.dtype) || left.dtype == DType::F32))
      return false;
    // The rows are outside of the batch, so that the rows of all matrices lie side by side.
    for (const int64_t row : rows)
      for (const int64_t axis : dot.batch_left)
        if (row > axis) return false;
    const int64_t batch = elements(left.shape, dot.batch_left);
    const int64_t width = elements(right.shape, columns);
    return batch > 1 && width <= kMostColumns &&
           elements(left.shape, dot.contract_left) <= kMostTermsOfNarrowDots &&
           batch * width * elements(left.shape, rows) >= kLeastResults;
  }

  // The operand over the axes of the sums: the rows, then matrices and columns as one axis, then
  // the terms.
  NodeId spread(NodeId operand, const Axes& order, const std::vector<Expr>& split,
                const std::vector<Expr>& one, const Axes& split_axes, const Axes& axes,
                const Shape& all) const {
    NodeId out = build::transpose(graph, operand, order, where);
    if (!split_axes.empty()) out = build::broadcast(graph, out, Shape(split), split_axes, where);
    out = build::reshape(graph, out, Shape(one), where);
    out = build::convert(graph, out, DType::F32, where);
    return build::broadcast(graph, out, all, axes, where);
  }

  NodeId sums() const {
    const auto row_dims = dims_of(left.shape, rows), batch = dims_of(left.shape, dot.batch_left),
               column_dims = dims_of(right.shape, columns),
               terms = dims_of(left.shape, dot.contract_left);
    const Expr lines = Shape(batch).numel() * Shape(column_dims).numel();
    const size_t r = row_dims.size(), b = batch.size(), c = column_dims.size(), k = terms.size();
    const auto concat = [](std::initializer_list<std::vector<Expr>> lists) {
      std::vector<Expr> out;
      for (const auto& list : lists) out.insert(out.end(), list.begin(), list.end());
      return out;
    };
    const Shape all(concat({row_dims, {lines}, terms}));
    const NodeId of_left = spread(x, joined({rows, dot.batch_left, dot.contract_left}),
                                  concat({row_dims, batch, column_dims, terms}), all.dims(),
                                  joined({axes_from(0, r + b), axes_from(r + b + c, k)}),
                                  axes_from(0, all.rank()), all);
    const NodeId of_right = spread(y, joined({dot.batch_right, columns, dot.contract_right}), {},
                                   concat({{lines}, terms}), {}, axes_from(r, 1 + k), all);
    const NodeId products = build::map(graph, ElementwiseOp::mul, {of_left, of_right}, where);
    NodeId out = build::reduce(graph, Monoid::Sum, products, axes_from(r + 1, k), where);
    out = build::convert(graph, out, step.node.type.dtype, where);
    out = build::reshape(graph, out, Shape(concat({row_dims, batch, column_dims})), where);
    return build::transpose(graph, out,
                            joined({axes_from(r, b), axes_from(0, r), axes_from(r + b, c)}), where);
  }
};

}  // namespace

Graph narrow_dots(const Graph& graph) {
  return rewrite(graph, [](const Rewriting& step) {
    const auto* found = step.node.as<DotOp>();
    if (!found) return step.keep();
    const NarrowDot dot{step, *found};
    return dot.is_narrow() ? dot.sums() : step.keep();
  });
}

}  // namespace braze
