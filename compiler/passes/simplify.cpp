#include "compiler/passes/simplify.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "ir/code/comparisons.h"
#include "ir/graph/build.h"
#include "ir/graph/rewrite.h"
#include "ir/graph/splat.h"

namespace braze {

namespace {

// What a rule sees: a node about to be added to `graph`, on its new operands.
struct Site {
  Graph& graph;
  const Node& node;
  const std::vector<NodeId>& operands;

  const Node& operand(size_t i) const { return graph[operands[i]]; }
  template <class T>
  const T* operand_as(size_t i) const {
    return graph[operands[i]].as<T>();
  }
  bool floats() const { return is_floating(node.type.dtype); }

  bool is(size_t i, double value) const {
    const auto v = splat(graph, operands[i]);
    return v && *v == value && std::signbit(*v) == std::signbit(value);
  }
  // The neutral element of addition: -0 for floats, since -0 + 0 is 0.
  bool is_zero_for_add(size_t i) const { return floats() ? is(i, -0.0) : is(i, 0.0); }
};

// A rule returns what replaces the node, or nothing.
using Replacement = std::optional<NodeId>;

Replacement first_if(const Site& s, bool fires) {
  return fires ? Replacement(s.operands[0]) : std::nullopt;
}
Replacement second_if(const Site& s, bool fires) {
  return fires ? Replacement(s.operands[1]) : std::nullopt;
}

// The operand of operand 0, if operand 0 is the same op: doing it twice changes nothing.
Replacement undo(const Site& s, ElementwiseOp op) {
  const auto* inner = s.operand_as<MapOp>(0);
  return inner && inner->op == op ? Replacement(s.operand(0).operands[0]) : std::nullopt;
}

// The comparison that holds where operand 0, a comparison, does not. Neither of `<` and `>=` holds
// for NaN.
Replacement negate_comparison(const Site& s) {
  const auto* inner = s.operand_as<MapOp>(0);
  const ComparisonRow* row = inner ? comparison_row(inner->op) : nullptr;
  if (!row) return std::nullopt;
  const std::vector<NodeId>& compared = s.operand(0).operands;
  const bool orders = inner->op != ElementwiseOp::eq && inner->op != ElementwiseOp::ne;
  if (orders && is_floating(s.graph[compared[0]].type.dtype)) return std::nullopt;
  return build::map(s.graph, row->opposite, compared, s.node.location);
}

struct MapRule {
  ElementwiseOp op;
  std::string_view meaning;
  Replacement (*apply)(const Site&);
};

constexpr MapRule kMapRules[] = {
    {ElementwiseOp::add, "x + neutral = x",
     [](const Site& s) { return first_if(s, s.is_zero_for_add(1)); }},
    {ElementwiseOp::add, "neutral + x = x",
     [](const Site& s) { return second_if(s, s.is_zero_for_add(0)); }},
    {ElementwiseOp::sub, "x - 0 = x", [](const Site& s) { return first_if(s, s.is(1, 0.0)); }},
    {ElementwiseOp::mul, "x * 1 = x", [](const Site& s) { return first_if(s, s.is(1, 1.0)); }},
    {ElementwiseOp::mul, "1 * x = x", [](const Site& s) { return second_if(s, s.is(0, 1.0)); }},
    {ElementwiseOp::div, "x / 1 = x", [](const Site& s) { return first_if(s, s.is(1, 1.0)); }},
    {ElementwiseOp::neg, "-(-x) = x", [](const Site& s) { return undo(s, ElementwiseOp::neg); }},
    {ElementwiseOp::logical_not, "not not x = x",
     [](const Site& s) { return undo(s, ElementwiseOp::logical_not); }},
    {ElementwiseOp::logical_not, "not x < y is x >= y", negate_comparison},
    {ElementwiseOp::abs, "||x|| = |x|",
     [](const Site& s) {
       const auto* inner = s.operand_as<MapOp>(0);
       return first_if(s, inner && inner->op == ElementwiseOp::abs);
     }},
    {ElementwiseOp::max, "max(x, x) = x",
     [](const Site& s) { return first_if(s, s.operands[0] == s.operands[1]); }},
    {ElementwiseOp::min, "min(x, x) = x",
     [](const Site& s) { return first_if(s, s.operands[0] == s.operands[1]); }},
    {ElementwiseOp::logical_and, "x and x = x",
     [](const Site& s) { return first_if(s, s.operands[0] == s.operands[1]); }},
    {ElementwiseOp::logical_or, "x or x = x",
     [](const Site& s) { return first_if(s, s.operands[0] == s.operands[1]); }},
    {ElementwiseOp::select, "c ? x : x = x",
     [](const Site& s) { return second_if(s, s.operands[1] == s.operands[2]); }},
    {ElementwiseOp::convert, "convert to the same dtype",
     [](const Site& s) { return first_if(s, s.operand(0).type.dtype == s.node.type.dtype); }},
    {ElementwiseOp::convert, "a 16-bit float, widened and narrowed again",
     [](const Site& s) -> Replacement {
       const auto* inner = s.operand_as<MapOp>(0);
       const DType between = s.operand(0).type.dtype;
       if (!inner || inner->op != ElementwiseOp::convert || !is_half(s.node.type.dtype) ||
           (between != DType::F32 && between != DType::F64))
         return std::nullopt;
       const NodeId x = s.operand(0).operands[0];
       return s.graph[x].type.dtype == s.node.type.dtype ? Replacement(x) : std::nullopt;
     }},
    {ElementwiseOp::bitcast, "bitcast to the same dtype",
     [](const Site& s) { return first_if(s, s.operand(0).type.dtype == s.node.type.dtype); }},
};

bool is_identity(const std::vector<int64_t>& permutation) {
  for (size_t i = 0; i < permutation.size(); ++i)
    if (permutation[i] != static_cast<int64_t>(i)) return false;
  return true;
}

Replacement simplify(const Site& s, const MapOp& op) {
  for (const MapRule& rule : kMapRules) {
    if (rule.op != op.op) continue;
    // A scalar operand stands for its broadcast, but a replacement must have the node's shape.
    if (const Replacement found = rule.apply(s); found && s.graph[*found].type == s.node.type)
      return found;
  }
  return std::nullopt;
}

Replacement simplify(const Site& s, const BroadcastOp&) {
  return first_if(s, s.operand(0).type == s.node.type);
}

Replacement simplify(const Site& s, const ReshapeOp&) {
  if (s.operand(0).type == s.node.type) return s.operands[0];
  if (!s.operand_as<ReshapeOp>(0)) return std::nullopt;
  return build::reshape(s.graph, s.operand(0).operands[0], s.node.type.shape, s.node.location);
}

Replacement simplify(const Site& s, const TransposeOp& op) {
  if (is_identity(op.permutation)) return s.operands[0];
  const auto* inner = s.operand_as<TransposeOp>(0);
  if (!inner) return std::nullopt;
  std::vector<int64_t> both;
  for (int64_t axis : op.permutation) both.push_back(inner->permutation[static_cast<size_t>(axis)]);
  const NodeId x = s.operand(0).operands[0];
  return is_identity(both) ? x : build::transpose(s.graph, x, both, s.node.location);
}

Replacement simplify(const Site& s, const SliceOp& op) {
  bool whole = s.operand(0).type == s.node.type;
  for (size_t i = 0; i < op.starts.size(); ++i)
    whole = whole && op.starts[i].is_constant(0) && op.strides[i] == 1;
  return first_if(s, whole);
}

// A window over a padding with the same value is a window that reaches further.
Replacement window_of_pad(const Site& s, const WindowsOp& op) {
  const auto* pad = s.operand_as<PadOp>(0);
  if (!pad || s.operand(0).operands[1] != s.operands[1]) return std::nullopt;
  WindowsOp both = op;
  size_t w = 0;
  for (size_t axis = 0; axis < pad->low.size(); ++axis) {
    if (w < op.axes.size() && op.axes[w] == static_cast<int64_t>(axis)) {
      if (op.gaps[w] != 1) return std::nullopt;
      both.low[w] += pad->low[axis];
      both.gaps[w++] = pad->interior[axis] + 1;
    } else if (!pad->low[axis].is_constant(0) || !pad->high[axis].is_constant(0) ||
               pad->interior[axis] != 0) {
      return std::nullopt;
    }
  }
  return build::windows(s.graph, s.operand(0).operands[0], s.operands[1], std::move(both),
                        s.node.type.shape, s.node.location);
}

Replacement simplify(const Site& s, const PadOp&) {
  return first_if(s, s.operand(0).type == s.node.type);
}

Replacement simplify(const Site& s, const WindowsOp& op) {
  bool whole = s.operand(0).type == s.node.type;
  for (size_t i = 0; i < op.axes.size(); ++i) {
    const Expr& taps = s.node.type.shape[static_cast<size_t>(op.taps[i])];
    whole = whole && op.strides[i] == op.gaps[i] && op.low[i].is_constant(0) &&
            (op.dilations[i] == 0 || taps.range().max <= 1);
  }
  if (whole) return s.operands[0];
  return window_of_pad(s, op);
}

// On one device, and in a graph that distribute made, `constrain` has no effect.
Replacement simplify(const Site& s, const ConstrainOp&) { return s.operands[0]; }
Replacement simplify(const Site& s, const ConcatOp&) { return first_if(s, s.operands.size() == 1); }
Replacement simplify(const Site& s, const ReverseOp& op) { return first_if(s, op.axes.empty()); }
Replacement simplify(const Site& s, const ReduceOp& op) {
  const Shape& shape = s.operand(0).type.shape;
  const bool alone = std::ranges::all_of(
      op.axes, [&](int64_t axis) { return shape[static_cast<size_t>(axis)].is_constant(1); });
  if (!alone || s.operand(0).type.dtype != s.node.type.dtype) return std::nullopt;
  // A combination of one element.
  return build::reshape(s.graph, s.operands[0], s.node.type.shape, s.node.location);
}
Replacement simplify(const Site& s, const ScanOp& op) {
  // A reduction of one element, or of none.
  const Shape& shape = s.node.type.shape;
  const bool alone = shape[static_cast<size_t>(op.axis)].range().max <= 1;
  if (!alone && shape.numel().range().max > 0) return std::nullopt;
  const auto part = static_cast<size_t>(op.part);
  if (!op.exclusive) return s.operands[part];
  // The identity of a body is given in the dtype in which it combines.
  const DType dtype = s.node.type.dtype;
  const DType given = op.combiner.body() ? op.combiner.accumulation(part, dtype) : dtype;
  NodeId nothing =
      build::scalar_bits(s.graph, given, op.combiner.identity(part, given), s.node.location);
  if (given != dtype) nothing = build::convert(s.graph, nothing, dtype, s.node.location);
  return build::broadcast_to(s.graph, nothing, shape, s.node.location);
}
template <class Other>
Replacement simplify(const Site&, const Other&) {
  return std::nullopt;
}

}  // namespace

Graph simplify(const Graph& graph) {
  // Operands are simplified before their users, so one sweep is enough.
  return rewrite(graph, [](const Rewriting& step) {
    const Site site{step.result, step.node, step.operands};
    if (const Replacement found =
            std::visit([&](const auto& op) { return simplify(site, op); }, step.node.op))
      return *found;
    return step.keep();
  });
}

}  // namespace braze
