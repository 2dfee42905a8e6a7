#include "ir/graph/coarse.h"

#include <algorithm>
#include <span>

#include "braze/error.h"
#include "ir/ops/math_bodies.h"

namespace braze {

namespace {

struct CoarseRow {
  ElementwiseOp op;
  Scalar (*body)(const Scalar& x);
};

constexpr CoarseRow kRows[] = {
    {ElementwiseOp::tanh, [](const Scalar& x) { return math::tanh_coarse(x); }},
    {ElementwiseOp::sigmoid, [](const Scalar& x) { return math::sigmoid_coarse(x); }},
    {ElementwiseOp::erfc, [](const Scalar& x) { return math::erfc_coarse(x); }},
};

// Formula rows with a short body for f32.
constexpr CoarseRow kShortRows[] = {
    {ElementwiseOp::gelu, [](const Scalar& x) { return math::gelu_f32(x); }},
};

const CoarseRow* find(ElementwiseOp op, std::span<const CoarseRow> rows = kRows) {
  for (const CoarseRow& row : rows)
    if (row.op == op) return &row;
  return nullptr;
}

bool rounds_to_half(const Graph& graph, const Node& node) {
  const MapOp* map = node.as<MapOp>();
  return map && map->op == ElementwiseOp::convert && is_half(node.type.dtype) &&
         graph[node.operands[0]].type.dtype == DType::F32;
}

bool rounds_or_accumulates(const Graph& graph, const Node& node) {
  return rounds_to_half(graph, node) || accumulates(node);
}

// Whether a small error of an operand may change the result by much.
bool has_steps(const Node& node) {
  using enum ElementwiseOp;
  const MapOp* map = node.as<MapOp>();
  return map && (map->op == floor || map->op == ceil || map->op == round_even || map->op == trunc ||
                 map->op == rem);
}

// The nodes that are outputs, by node.
std::vector<bool> output_nodes(const Graph& graph) {
  std::vector<bool> out(graph.size());
  for (const GraphOutput& output : graph.outputs()) out[output.node.index] = true;
  return out;
}

// See seen_nodes. Nodes that are `exact` are seen, too.
std::vector<bool> seen_or_exact(const Graph& graph, const std::vector<bool>& outputs,
                                bool (*hides)(const Graph&, const Node&),
                                bool (*exact)(const Node&)) {
  std::vector<bool> needed = outputs, seen = outputs;
  for (size_t i = graph.size(); i-- > 0;) {
    const Node& node = graph[NodeId(i)];
    if (has_side_effects(node)) needed[i] = true;
    if (needed[i])
      for (NodeId operand : node.operands) needed[operand.index] = true;
    // The operands of a comparison, an index or an integer decide its value, so they are observed.
    // So is what a function of the host program gets.
    seen[i] =
        seen[i] ||
        (needed[i] && (!is_floating(node.type.dtype) || exact(node) || node.as<CustomCallOp>()));
    if (seen[i] && !hides(graph, node))
      for (NodeId operand : node.operands) seen[operand.index] = true;
  }
  return seen;
}

}  // namespace

bool has_coarse_body(ElementwiseOp op) { return find(op); }

bool may_be_coarse(ElementwiseOp op) { return has_coarse_body(op) || op == ElementwiseOp::div; }

Scalar coarse_body(ElementwiseOp op, const Scalar& x) {
  const CoarseRow* row = find(op);
  BRAZE_CHECK(row && x.dtype() == DType::F32, "no coarse body");
  return row->body(x);
}

bool has_short_body(ElementwiseOp op, DType dtype) {
  return dtype == DType::F32 && find(op, kShortRows);
}

Scalar short_body(ElementwiseOp op, const Scalar& x) {
  const CoarseRow* row = find(op, kShortRows);
  BRAZE_CHECK(row && x.dtype() == DType::F32, "no short body");
  return row->body(x);
}

bool accumulates(const Node& node) {
  if (!is_floating(node.type.dtype)) return false;
  if (const ReduceOp* reduce = node.as<ReduceOp>())
    return reduce->monoid == Monoid::Sum || reduce->monoid == Monoid::Prod;
  if (const ScanOp* scan = node.as<ScanOp>())
    return scan->combiner.is(Monoid::Sum) || scan->combiner.is(Monoid::Prod);
  if (const ScatterOp* scatter = node.as<ScatterOp>())
    return scatter->monoid == Monoid::Sum || scatter->monoid == Monoid::Prod;
  return node.as<DotOp>();
}

std::vector<bool> seen_nodes(const Graph& graph, bool (*hides)(const Graph&, const Node&)) {
  return seen_or_exact(graph, output_nodes(graph), hides, [](const Node&) { return false; });
}

namespace {

std::vector<bool> coarse_for(const Graph& graph, const std::vector<bool>& outputs) {
  std::vector<bool> coarse = seen_or_exact(graph, outputs, rounds_or_accumulates, has_steps);
  coarse.flip();
  for (size_t i = 0; i < graph.size(); ++i) {
    // The body of a formula on 16 bits is computed in f32 and rounded.
    const Node& node = graph[NodeId(i)];
    const MapOp* map = node.as<MapOp>();
    if (is_half(node.type.dtype)) coarse[i] = map && info(map->op).op_class == OpClass::Formula;
  }
  return coarse;
}

}  // namespace

std::vector<bool> coarse_nodes(const Graph& graph) {
  return coarse_for(graph, output_nodes(graph));
}

std::vector<bool> coarse_nodes(const Graph& graph, NodeId output) {
  std::vector<bool> outputs(graph.size());
  outputs[output.index] = true;
  return coarse_for(graph, outputs);
}

namespace {

// For each axis of a value, the axis of x along which it runs; nothing for an axis of one element.
using AxesOf = std::vector<std::optional<size_t>>;

// The axes of the operands of a node that computes element by element or repeats elements.
std::optional<AxesOf> axes_below(const Graph& graph, const Node& node, const AxesOf& axes) {
  if (node.as<MapOp>()) return axes;
  AxesOf out;
  if (const auto* broadcast = node.as<BroadcastOp>()) {
    for (const int64_t axis : broadcast->axes) out.push_back(axes[static_cast<size_t>(axis)]);
    return out;
  }
  if (!node.as<ReshapeOp>()) return std::nullopt;
  // Axes of one element may come and go.
  const Shape &to = node.type.shape, &from = graph[node.operands[0]].type.shape;
  size_t next = 0;
  const auto skip_ones = [&] {
    while (next < to.rank() && to[next].is_constant(1)) ++next;
  };
  for (const Expr& extent : from) {
    out.emplace_back();
    if (extent.is_constant(1)) continue;
    skip_ones();
    if (next == to.rank() || !(to[next] == extent)) return std::nullopt;
    out.back() = axes[next++];
  }
  skip_ones();
  return next == to.rank() ? std::optional(out) : std::nullopt;
}

// Whether these are the axes that the reduction of x keeps, in their order.
bool are_kept(const AxesOf& axes, const ReduceOp& reduce, const Shape& shape) {
  size_t next = 0;
  for (size_t axis = 0; axis < shape.rank(); ++axis) {
    if (std::ranges::count(reduce.axes, static_cast<int64_t>(axis)) > 0) continue;
    if (next == axes.size() || (axes[next] != axis && !shape[axis].is_constant(1))) return false;
    ++next;
  }
  return next == axes.size();
}

}  // namespace

std::optional<NodeId> summed_power(const Graph& graph, const Node& sum) {
  constexpr int64_t kFewTerms = 64;
  const auto* reduce = sum.as<ReduceOp>();
  if (!reduce || reduce->monoid != Monoid::Sum || sum.type.dtype != DType::F32) return std::nullopt;
  const NodeId power = sum.operands[0];
  Expr terms = 1;
  for (const int64_t axis : reduce->axes)
    terms = terms * graph[power].type.shape[static_cast<size_t>(axis)];
  if (terms.range().min < kFewTerms) return std::nullopt;
  const auto is = [&](NodeId id, ElementwiseOp op) {
    const auto* map = graph[id].as<MapOp>();
    return map && map->op == op;
  };
  if (!is(power, ElementwiseOp::exp)) return std::nullopt;
  const NodeId difference = graph[power].operands[0];
  if (!is(difference, ElementwiseOp::sub)) return std::nullopt;
  const NodeId x = graph[difference].operands[0];
  const Shape& shape = graph[x].type.shape;
  bool out = false;
  std::vector<std::pair<NodeId, AxesOf>> left = {{graph[difference].operands[1], {}}};
  for (size_t axis = 0; axis < shape.rank(); ++axis) left[0].second.push_back(axis);
  for (size_t seen = 0; seen < left.size(); ++seen) {
    constexpr size_t kMostNodes = 16;
    const auto [id, axes] = left[seen];
    const Node& of = graph[id];
    if (of.as<ConstantOp>()) continue;
    const auto* greatest = of.as<ReduceOp>();
    if (greatest && greatest->monoid == Monoid::Max && greatest->axes == reduce->axes &&
        of.operands[0] == x && are_kept(axes, *reduce, shape)) {
      out = true;
      continue;
    }
    const auto below = axes_below(graph, of, axes);
    if (!below || seen > kMostNodes) return std::nullopt;
    for (const NodeId operand : of.operands)
      left.emplace_back(operand, graph[operand].type.shape.rank() == 0 ? AxesOf() : *below);
  }
  return out ? std::optional(power) : std::nullopt;
}

std::vector<bool> approximate_powers(const Graph& graph) {
  const auto hides = [](const Graph& of, const Node& node) {
    return rounds_to_half(of, node) || summed_power(of, node);
  };
  const std::vector<bool> seen = seen_or_exact(graph, output_nodes(graph), hides, has_steps);
  std::vector<bool> reduced(graph.size()), out(graph.size());
  for (size_t i = 0; i < graph.size(); ++i) {
    const Node& node = graph[NodeId(i)];
    reduced[i] = node.as<ReduceOp>() || node.as<ScanOp>() || node.as<ScatterOp>() ||
                 node.as<DotOp>() ||
                 std::ranges::any_of(node.operands, [&](NodeId x) { return reduced[x.index]; });
    out[i] = reduced[i] && !seen[i];
  }
  return out;
}

}  // namespace braze
