#include "ir/graph/coarse.h"

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

const CoarseRow* find(ElementwiseOp op) {
  for (const CoarseRow& row : kRows)
    if (row.op == op) return &row;
  return nullptr;
}

bool rounds_or_accumulates(const Graph& graph, const Node& node) {
  const MapOp* map = node.as<MapOp>();
  const bool rounds = map && map->op == ElementwiseOp::convert && is_half(node.type.dtype) &&
                      graph[node.operands[0]].type.dtype == DType::F32;
  return rounds || accumulates(node);
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

}  // namespace braze
