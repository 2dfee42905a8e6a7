#include "ir/graph/text.h"

#include <algorithm>
#include <unordered_set>

#include "ir/graph/constant_text.h"
#include "ir/support/text.h"

namespace braze {
namespace {

using fmt::format;

// Whether "%text" is one token and not a number: numbers are for values without a name.
bool is_value_name(std::string_view text) {
  constexpr size_t kLongest = 80;
  const auto is_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  if (text.empty() || text.size() > kLongest || text.back() == '.' || text.front() == '.')
    return false;
  for (size_t i = 0; i < text.size(); ++i)
    if (!is_word(text[i]) && !(text[i] == '.' && text[i - 1] != '.')) return false;
  return !std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::string list_text(const std::vector<int64_t>& values) {
  return format("[{}]", join(values, ", ", [](int64_t v) { return std::to_string(v); }));
}

std::string list_text(const std::vector<Expr>& values) {
  return format("[{}]", join(values, ", ", [](const Expr& e) { return e.to_string(); }));
}

// The attributes of an op as text, without the braces around them.
struct AttributeText {
  std::string operator()(const BroadcastOp& op) const { return "axes: " + list_text(op.axes); }
  std::string operator()(const TransposeOp& op) const {
    return "permutation: " + list_text(op.permutation);
  }
  std::string operator()(const SliceOp& op) const {
    return format("starts: {}, limits: {}, strides: {}", list_text(op.starts), list_text(op.limits),
                  list_text(op.strides));
  }
  std::string operator()(const PadOp& op) const {
    return format("low: {}, high: {}, interior: {}", list_text(op.low), list_text(op.high),
                  list_text(op.interior));
  }
  std::string operator()(const WindowsOp& op) const {
    return format("axes: {}, taps: {}, strides: {}, dilations: {}, gaps: {}, low: {}",
                  list_text(op.axes), list_text(op.taps), list_text(op.strides),
                  list_text(op.dilations), list_text(op.gaps), list_text(op.low));
  }
  std::string operator()(const ConcatOp& op) const { return format("axis: {}", op.axis); }
  std::string operator()(const ReverseOp& op) const { return "axes: " + list_text(op.axes); }
  std::string operator()(const IotaOp& op) const { return format("axis: {}", op.axis); }
  std::string operator()(const SizeOp& op) const { return "value: " + op.value.to_string(); }
  std::string operator()(const GatherOp& op) const { return format("axis: {}", op.axis); }
  std::string operator()(const ScatterOp& op) const { return format("axis: {}", op.axis); }
  std::string operator()(const ReduceOp& op) const { return "axes: " + list_text(op.axes); }
  std::string operator()(const ArgReduceOp& op) const { return format("axis: {}", op.axis); }
  std::string operator()(const ArgSortOp& op) const {
    return format("axis: {}{}", op.axis, op.descending ? ", descending: true" : "");
  }
  std::string operator()(const ScanOp& op) const {
    return format("axis: {}{}{}{}", op.axis, op.reverse ? ", reverse: true" : "",
                  op.exclusive ? ", exclusive: true" : "",
                  op.part > 0 ? format(", part: {}", op.part) : "");
  }
  std::string operator()(const DotOp& op) const {
    std::string text;
    if (!op.batch_left.empty() || !op.batch_right.empty())
      text = format("batch: {} x {}, ", list_text(op.batch_left), list_text(op.batch_right));
    text += format("contract: {} x {}", list_text(op.contract_left), list_text(op.contract_right));
    return op.tf32 ? text + ", tf32: true" : text;
  }
  std::string operator()(const BarrierOp& op) const {
    return op.recompute ? "recompute: true" : "";
  }
  std::string operator()(const CollectiveOp& op) const {
    const std::string_view word = offset_word(op.kind);
    return word.empty() ? "over: " + op.axis.name
                        : format("over: {}, {}: {}", op.axis.name, word, op.offset);
  }
  std::string operator()(const AxisIndexOp& op) const { return "over: " + op.axis.name; }
  std::string operator()(const CustomCallOp& op) const {
    std::string text = "target: " + quote(op.target);
    if (!op.attributes.empty()) text += ", attributes: " + quote(op.attributes);
    return op.has_side_effects ? text + ", side_effects: true" : text;
  }
  std::string operator()(const ConstrainOp& op) const {
    return format("axes: [{}]", join(op.sharding.axes(), ", ", [](const std::string& axis) {
                    return axis.empty() ? std::string("none") : axis;
                  }));
  }
  template <class Other>
  std::string operator()(const Other&) const {
    return "";
  }
};

}  // namespace

GraphPrinter::GraphPrinter(const Graph& graph, GraphTextOptions options)
    : graph_(graph), options_(options), names_(graph.size()), implicit_(graph.size()) {
  // A broadcast of a scalar is implicit if only map ops use it.
  std::vector<bool> used_by_map(graph.size()), used_otherwise(graph.size());
  for (size_t i = 0; i < graph.size(); ++i) {
    const Node& node = graph[NodeId(i)];
    for (const NodeId operand : node.operands)
      if (operand.index < i)
        (node.as<MapOp>() ? used_by_map : used_otherwise)[operand.index] = true;
  }
  for (const GraphOutput& output : graph.outputs())
    if (output.node.index < graph.size()) used_otherwise[output.node.index] = true;
  for (size_t i = 0; i < graph.size(); ++i) {
    const Node& node = graph[NodeId(i)];
    implicit_[i] = node.as<BroadcastOp>() && node.as<BroadcastOp>()->axes.empty() &&
                   node.operands.size() == 1 && node.type.shape.rank() > 0 &&
                   !is_value_name(node.label) && used_by_map[i] && !used_otherwise[i];
  }

  // Inputs get their names first, because their names are part of the graph's meaning.
  std::unordered_set<std::string> taken;
  for (const NodeId input : graph.inputs()) {
    const std::string& name = graph[input].as<InputOp>()->name;
    if (is_value_name(name) && taken.insert(name).second) names_[input.index] = name;
  }
  size_t number = 0;
  std::unordered_map<std::string, size_t> repeats;
  const auto choose = [&](NodeId id) {
    std::string& name = names_[id.index];
    const std::string& label = graph[id].label;
    if (!name.empty() || implicit_[id.index]) return;
    if (graph[id].as<InputOp>() || !is_value_name(label)) {
      name = std::to_string(number++);
      return;
    }
    for (name = label; !taken.insert(name).second;)
      name = format("{}.{}", label, ++repeats.try_emplace(label, 1).first->second);
  };
  for (const NodeId input : graph.inputs()) choose(input);
  for (size_t i = 0; i < graph.size(); ++i) choose(NodeId(i));
}

std::string GraphPrinter::value(NodeId id) const {
  if (id.index >= graph_.size()) return "%?";
  return "%" + names_[implicit_[id.index] ? graph_[id].operands[0].index : id.index];
}

std::string GraphPrinter::node(NodeId id) const {
  const Node& node = graph_[id];
  std::string text = value(id);
  if (const auto* input = node.as<InputOp>()) {
    if (text.substr(1) != input->name) text += " " + quote(input->name);
    text += ": " + node.type.to_string();
    if (!input->varying.empty())
      text += format(" varying [{}]",
                     join(input->varying, ", ", [](const MeshAxis& axis) { return axis.name; }));
  } else {
    text += format(" = {}", op_name(node.op));
    if (const auto* reduce = node.as<ReduceOp>()) text += format(" {}", name(reduce->monoid));
    if (const auto* scan = node.as<ScanOp>()) text += " " + scan->combiner.to_string();
    if (const auto* op = node.as<CollectiveOp>(); op && reduces(op->kind))
      text += format(" {}", name(op->monoid));
    if (const auto* constant = node.as<ConstantOp>()) text += " " + constant_text(*constant->value);
    if (!node.operands.empty())
      text += " " + join(node.operands, ", ", [&](NodeId operand) { return value(operand); });
    if (const std::string attributes = std::visit(AttributeText{}, node.op); !attributes.empty())
      text += format(" {{{}}}", attributes);
    text += " : " + node.type.to_string();
  }
  if (const SourceLocation& at = node.location; options_.locations && at) {
    text += format(" loc({}:{}", quote(at.file), at.line);
    text += at.column ? format(":{})", at.column) : ")";
  }
  return text;
}

std::string GraphPrinter::graph() const {
  std::string text = "braze 1 graph\n";
  for (const Expr& symbol : graph_.symbols()) text += symbol_text(symbol) + "\n";
  for (const MeshAxis& axis : graph_.mesh_axes()) text += mesh_axis_text(axis) + "\n";
  const auto& inputs = graph_.inputs();
  const std::string input_texts = join(inputs, ", ", [&](NodeId id) { return node(id); });
  text += format("graph @{}({}) {{\n", graph_.name(), input_texts);
  for (size_t i = 0; i < graph_.size(); ++i)
    if (!implicit_[i] && !graph_[NodeId(i)].as<InputOp>())
      text += format("  {}\n", node(NodeId(i)));
  text += "  return";
  text += join(graph_.outputs(), ",", [&](const GraphOutput& output) {
    std::string part = " " + value(output.node);
    if (!output.name.empty()) part += " as " + quote(output.name);
    if (output.updates && *output.updates < inputs.size())
      part += " updates " + value(inputs[*output.updates]);
    return part;
  });
  return text + "\n}\n";
}

std::string to_text(const Graph& graph, GraphTextOptions options) {
  return GraphPrinter(graph, options).graph();
}

std::string mesh_axis_text(const MeshAxis& axis) {
  return format("mesh {}: {}", axis.name, axis.size);
}

std::string symbol_text(const Expr& symbol) {
  const Interval range = symbol.range();
  std::string text = format("symbol {}: {}..{}", symbol.symbol_name(), range.min, range.max);
  return symbol.divisor() == 1 ? text : format("{}%{}", text, symbol.divisor());
}

}  // namespace braze
