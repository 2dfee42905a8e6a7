// The invariants of Graph IR, all of them:
//
//   operands   every operand is a node that comes before its user
//   types      a node's type is what infer_type says of its op, attributes and operand types; this
//              covers arities, attributes, dtypes, shapes, and the limits of extents and sizes
//   inputs     inputs have names, and no two the same
//   outputs    an output is a node of the graph; no two outputs share a name (an output may have
//              none); an output that updates an input has that input's type, and no input is
//              updated twice
//   symbols    one name stands for one range and one divisor throughout the graph, and has no other
//              meaning
//   mesh       one name stands for one size of an axis; an input names an axis once

#include "ir/graph/verify.h"

#include <optional>
#include <set>
#include <unordered_map>

#include "ir/graph/infer.h"
#include "ir/graph/text.h"
#include "ir/support/text.h"

namespace braze {
namespace {

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph) {}

  std::vector<Diagnostic> run() {
    for (size_t i = 0; i < graph_.size(); ++i) check_node(NodeId(i));
    check_inputs();
    check_mesh();
    check_outputs();
    return std::move(found_);
  }

 private:
  void report(const Code& code, std::string message, NodeId at) {
    const bool exists = at.index < graph_.size();
    if (!printer_) printer_.emplace(graph_);
    found_.push_back({&code, exists ? graph_[at].location : SourceLocation(),
                      exists ? printer_->node(at) : "", std::move(message)});
  }

  void check_node(NodeId id) {
    const Node& node = graph_[id];
    std::vector<const TensorType*> types;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      if (node.operands[i] < id)
        types.push_back(&graph_[node.operands[i]].type);
      else
        report(codes::kUndefinedOperand, fmt::format("operand {} does not come before its user", i),
               id);
    }
    for (const Expr& extent : node.type.shape) check_symbols(extent, id);
    if (const auto* size = node.as<SizeOp>()) check_symbols(size->value, id);
    if (types.size() < node.operands.size()) return;
    try {
      const TensorType expected = infer_type(node.op, types, node.type, node.location);
      if (expected != node.type)
        report(codes::kWrongType,
               fmt::format("the type is {}, but the result of the op has the type {}",
                           node.type.to_string(), expected.to_string()),
               id);
    } catch (const Error& error) {
      report(error.code(), error.message(), id);
    }
  }

  void check_symbols(const Expr& expr, NodeId id) {
    if (expr.kind() == Expr::Kind::Symbol) {
      const auto [known, is_new] = symbols_.emplace(expr.symbol_name(), expr);
      if (!is_new &&
          (known->second.range() != expr.range() || known->second.divisor() != expr.divisor()))
        report(codes::kSymbolConflict,
               fmt::format("the symbol {} occurs with two different ranges", expr.symbol_name()),
               id);
      if (is_new && is_reserved_symbol(expr.symbol_name()))
        report(
            codes::kReservedSymbol,
            fmt::format("{} is a word of the language and cannot name a size", expr.symbol_name()),
            id);
    }
    for (const Expr& operand : expr.operands()) check_symbols(operand, id);
  }

  void check_inputs() {
    std::set<std::string_view> names;
    for (const NodeId id : graph_.inputs()) {
      const std::string& name = graph_[id].as<InputOp>()->name;
      if (name.empty()) report(codes::kBadInput, "an input has no name", id);
      if (!names.insert(name).second)
        report(codes::kBadInput, fmt::format("there are two inputs with the name {}", quote(name)),
               id);
    }
  }

  void check_mesh() {
    std::unordered_map<std::string, int64_t> sizes;
    for (size_t i = 0; i < graph_.size(); ++i) {
      const Node& node = graph_[NodeId(i)];
      std::vector<MeshAxis> named;
      if (const auto* input = node.as<InputOp>()) named = input->varying;
      if (const auto* collective = node.as<CollectiveOp>()) named = {collective->axis};
      if (const auto* index = node.as<AxisIndexOp>()) named = {index->axis};
      std::set<std::string_view> here;
      for (const MeshAxis& axis : named) {
        if (sizes.emplace(axis.name, axis.size).first->second != axis.size)
          report(codes::kMeshConflict,
                 fmt::format("the axis {} of the mesh occurs with two different sizes", axis.name),
                 NodeId(i));
        if (!here.insert(axis.name).second)
          report(codes::kMeshConflict, fmt::format("the axis {} is named twice", axis.name),
                 NodeId(i));
      }
    }
  }

  void check_outputs() {
    std::set<std::string_view> names;
    std::set<uint32_t> updated;
    for (const GraphOutput& output : graph_.outputs()) {
      if (!output.name.empty() && !names.insert(output.name).second)
        report(codes::kBadOutput,
               fmt::format("there are two outputs with the name {}", quote(output.name)),
               output.node);
      if (output.node.index >= graph_.size()) {
        report(codes::kBadOutput, "an output is not a node of the graph", output.node);
        continue;
      }
      if (!output.updates) continue;
      if (*output.updates >= graph_.inputs().size()) {
        report(codes::kBadOutput, "an output updates an input that does not exist", output.node);
        continue;
      }
      const Node& input = graph_[graph_.inputs()[*output.updates]];
      const std::string& name = input.as<InputOp>()->name;
      if (!updated.insert(*output.updates).second)
        report(codes::kBadOutput, fmt::format("the input {} is updated twice", quote(name)),
               output.node);
      const TensorType& type = graph_[output.node].type;
      if (type != input.type)
        report(codes::kBadOutput,
               fmt::format("an output of type {} cannot update the input {} of type {}",
                           type.to_string(), quote(name), input.type.to_string()),
               output.node);
    }
  }

  const Graph& graph_;
  std::optional<GraphPrinter> printer_;  // made for the first finding
  std::unordered_map<std::string, Expr> symbols_;
  std::vector<Diagnostic> found_;
};

}  // namespace

std::vector<Diagnostic> verify(const Graph& graph) { return Verifier(graph).run(); }

}  // namespace braze
