#include "compiler/passes/pack_factors.h"

#include <algorithm>
#include <numeric>

#include "ir/graph/build.h"
#include "ir/graph/rewrite.h"
#include "ir/target/features.h"

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

// The operand with its contracted axes as one, and zeros behind its end.
NodeId with_zeros(Graph& graph, NodeId x, const std::vector<int64_t>& contract, bool last,
                  int64_t zeros, const SourceLocation& where) {
  const Shape shape = graph[x].type.shape;
  std::vector<Expr> dims, low, high;
  Expr terms = 1;
  for (const int64_t axis : contract) terms *= shape[static_cast<size_t>(axis)];
  if (!last) dims.push_back(terms);
  for (int64_t axis = 0; axis < static_cast<int64_t>(shape.rank()); ++axis)
    if (!contains(contract, axis)) dims.push_back(shape[static_cast<size_t>(axis)]);
  if (last) dims.push_back(terms);
  low.assign(dims.size(), 0);
  high = low;
  (last ? high.back() : high.front()) = zeros;
  const DType dtype = graph[x].type.dtype;
  const NodeId flat = build::reshape(graph, x, Shape(std::move(dims)), where);
  const NodeId zero = build::constant(graph, HostTensor(dtype, {}), where);
  const std::vector<int64_t> interior(low.size());
  return build::pad(graph, flat, zero, std::move(low), std::move(high), interior, where);
}

// The product of what windows show and a matrix, whose rows are no multiple of 16 bytes; none if it
// is another product.
std::optional<NodeId> with_whole_rows(const Rewriting& step, const DotOp& dot) {
  constexpr int64_t kRowBytes = 16;
  Graph& graph = step.result;
  const NodeId x = step.operands[0], y = step.operands[1];
  const TensorType left = graph[x].type, right = graph[y].type;
  std::vector<int64_t> first(dot.contract_right.size());
  std::iota(first.begin(), first.end(), 0);
  if (!graph[x].as<WindowsOp>() || !is_half(left.dtype) || right.dtype != left.dtype ||
      !dot.batch_left.empty() || !left.shape.is_static() || !right.shape.is_static() ||
      !are_last(dot.contract_left, left.shape.rank()) || dot.contract_right != first)
    return std::nullopt;
  int64_t terms = 1;
  for (const int64_t axis : dot.contract_right)
    terms *= right.shape[static_cast<size_t>(axis)].range().max;
  const int64_t inner = left.shape[left.shape.rank() - 1].range().max;
  const auto whole = kRowBytes / static_cast<int64_t>(size_of(left.dtype));
  const double work = static_cast<double>(left.shape.numel().range().max) *
                      static_cast<double>(right.shape.numel().range().max / terms);
  if (terms % whole == 0 || inner % whole == 0 || work < kLeastAsynchronousDot) return std::nullopt;
  const int64_t zeros = whole - terms % whole;
  const SourceLocation& where = step.node.location;
  DotOp packed;
  packed.contract_left = {static_cast<int64_t>(left.shape.rank() - dot.contract_left.size())};
  packed.contract_right = {0};
  return build::dot(graph, with_zeros(graph, x, dot.contract_left, true, zeros, where),
                    with_zeros(graph, y, dot.contract_right, false, zeros, where), packed,
                    step.node.type.dtype, where);
}

}  // namespace

Graph pack_factors(const Graph& graph) {
  return rewrite(graph, [](const Rewriting& step) {
    const auto* found = step.node.as<DotOp>();
    if (found)
      if (const auto packed = with_whole_rows(step, *found)) return *packed;
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
