#include "compiler/passes/pack_factors.h"

#include <algorithm>
#include <numeric>

#include "ir/graph/build.h"
#include "ir/graph/rewrite.h"

namespace braze {

namespace {

// The number of uses of each element from which on a copy is worth its time.
constexpr double kLeastUses = 512;

bool contains(const std::vector<int64_t>& axes, int64_t axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

// How many times the product uses each element of an operand: the number of free elements of the
// other operand.
double uses(const Shape& other, const std::vector<int64_t>& batch,
            const std::vector<int64_t>& contract) {
  double out = 1;
  for (int64_t axis = 0; axis < static_cast<int64_t>(other.rank()); ++axis)
    if (!contains(batch, axis) && !contains(contract, axis))
      out *= static_cast<double>(other[static_cast<size_t>(axis)].range().max);
  return out;
}

// The operand with the axes of the list last, which become its last axes.
NodeId with_axes_last(Graph& graph, NodeId x, std::vector<int64_t>& batch,
                      std::vector<int64_t>& contract, const SourceLocation& where) {
  const auto rank = static_cast<int64_t>(graph[x].type.shape.rank());
  std::vector<int64_t> order;
  for (int64_t axis = 0; axis < rank; ++axis)
    if (!contains(contract, axis)) order.push_back(axis);
  for (int64_t& axis : batch) axis = std::find(order.begin(), order.end(), axis) - order.begin();
  const auto first = static_cast<int64_t>(order.size());
  order.insert(order.end(), contract.begin(), contract.end());
  std::iota(contract.begin(), contract.end(), first);
  return build::transpose(graph, x, order, where);
}

bool are_last(const std::vector<int64_t>& axes, size_t rank) {
  auto expected = static_cast<int64_t>(rank - axes.size());
  return std::all_of(axes.begin(), axes.end(), [&](int64_t axis) { return axis == expected++; });
}

}  // namespace

Graph pack_factors(const Graph& graph) {
  return rewrite(graph, [](const Rewriting& step) {
    const auto* found = step.node.as<DotOp>();
    if (!found || !found->tf32 || step.node.type.dtype != DType::F32) return step.keep();
    Graph& result = step.result;
    DotOp dot = *found;
    NodeId x = step.operands[0], y = step.operands[1];
    const Shape left = result[x].type.shape, right = result[y].type.shape;
    if (!are_last(dot.contract_left, left.rank()) &&
        uses(right, dot.batch_right, dot.contract_right) >= kLeastUses)
      x = with_axes_last(result, x, dot.batch_left, dot.contract_left, step.node.location);
    if (!are_last(dot.contract_right, right.rank()) &&
        uses(left, found->batch_left, found->contract_left) >= kLeastUses)
      y = with_axes_last(result, y, dot.batch_right, dot.contract_right, step.node.location);
    if (x == step.operands[0] && y == step.operands[1]) return step.keep();
    return build::dot(result, x, y, dot, step.node.type.dtype, step.node.location);
  });
}

}  // namespace braze
