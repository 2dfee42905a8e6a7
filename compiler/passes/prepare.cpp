#include "compiler/passes/prepare.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "ir/graph/axis_lists.h"
#include "ir/graph/build.h"
#include "ir/graph/rewrite.h"
#include "ir/support/text.h"

namespace braze {

namespace {

// Values of at most this size are prepared even if they are larger than the weights from which they
// are made.
constexpr int64_t kSmallBytes = 64 << 10;
// A value that is made from more weights than this is computed in every call.
constexpr size_t kMostSources = 64;
// If a product reads a factor at least this often, the factor's order in memory matters.
constexpr int64_t kLeastRows = 8;

std::optional<int64_t> bytes_of(const TensorType& type) {
  const auto elements = type.shape.numel().as_constant();
  if (!type.shape.is_static() || !elements) return std::nullopt;
  return *elements * static_cast<int64_t>(size_of(type.dtype));
}

// Whether the value is the same whenever and wherever it is computed.
bool is_function(const Node& node) {
  return !node.as<CollectiveOp>() && !node.as<AxisIndexOp>() && !node.as<BarrierOp>() &&
         !node.as<ConstrainOp>() && !node.as<CustomCallOp>();
}

// Whether the result is only an index map of the operand. An index map costs nothing where it is
// read, and which order of the axes in memory is best depends on the reader.
bool is_map(const Node& node) {
  return node.as<TransposeOp>() || node.as<ReshapeOp>() || node.as<SliceOp>() ||
         node.as<BroadcastOp>() || node.as<ReverseOp>();
}

// A factor in panels: its batched axes, the panels, its summed axes, and the columns of a panel.
struct Panels {
  std::vector<int64_t> batch, contract;
  int64_t free = 0;   // the axis that is cut into panels
  int64_t width = 0;  // columns of a panel
  int64_t count = 0;  // panels
  friend auto operator<=>(const Panels&, const Panels&) = default;

  // Makes the panels of `x`, whose axes are in the order batch, contract, free. The last panel is
  // filled to its full width.
  NodeId make(Graph& graph, NodeId x) const {
    std::vector<int64_t> order = batch;
    order.insert(order.end(), contract.begin(), contract.end());
    order.push_back(free);
    x = build::transpose(graph, x, order);
    Shape shape = graph[x].type.shape;
    const size_t last = shape.rank() - 1;
    const Expr missing = Expr(width * count) - shape[last];
    std::vector<Expr> zero(shape.rank(), Expr(0)), high = zero;
    high[last] = missing;
    if (!(missing == Expr(0)))
      x = build::pad(graph, x, build::scalar(graph, graph[x].type.dtype, 0), zero, high,
                     std::vector<int64_t>(shape.rank(), 0));
    std::vector<Expr> extents;
    for (size_t i = 0; i < last; ++i) extents.push_back(shape[i]);
    extents.insert(extents.end(), {Expr(count), Expr(width)});
    x = build::reshape(graph, x, Shape(extents));
    std::vector<int64_t> panels = axes_from(0, batch.size());
    panels.push_back(static_cast<int64_t>(last));
    for (const int64_t axis : axes_from(static_cast<int64_t>(batch.size()), contract.size()))
      panels.push_back(axis);
    panels.push_back(static_cast<int64_t>(last) + 1);
    return build::transpose(graph, x, panels);
  }

  // The factor that the panels `x` hold, with its axes in the order batch, contract, free.
  NodeId read(Graph& graph, NodeId x, const Expr& columns, const SourceLocation& where) const {
    const auto at = static_cast<int64_t>(batch.size());
    const auto summed = static_cast<int64_t>(contract.size());
    std::vector<int64_t> order = axes_from(0, batch.size());
    for (const int64_t axis : axes_from(at + 1, contract.size())) order.push_back(axis);
    order.insert(order.end(), {at, at + 1 + summed});
    x = build::transpose(graph, x, order, where);
    const Shape split = graph[x].type.shape;
    std::vector<Expr> extents;
    for (size_t i = 0; i + 2 < split.rank(); ++i) extents.push_back(split[i]);
    extents.emplace_back(width * count);
    x = build::reshape(graph, x, Shape(extents), where);
    std::vector<Expr> limits = extents;
    limits.back() = columns;
    if (!(columns == Expr(width * count)))
      x = build::slice(graph, x, std::vector<Expr>(extents.size(), Expr(0)), limits,
                       std::vector<int64_t>(extents.size(), 1), where);
    return x;
  }
};

class Preparation {
 public:
  Preparation(const Graph& graph, size_t first_weight, const Target& target)
      : graph_(graph), first_weight_(first_weight), target_(target), result_(graph.name()) {}

  Prepared run() {
    find_weights();
    find_prepared();
    build_rest();
    return {std::move(result_), std::move(weights_)};
  }

 private:
  // Finds the nodes that depend on weights and on no other input.
  void find_weights() {
    sources_.resize(graph_.size());
    std::vector<bool> varies(graph_.size());
    const auto& inputs = graph_.inputs();
    for (size_t i = 0; i < inputs.size(); ++i)
      if (i >= first_weight_)
        sources_[inputs[i].index] = {i};
      else
        varies[inputs[i].index] = true;
    for (size_t i = 0; i < graph_.size(); ++i) {
      const Node& node = graph_[NodeId(i)];
      if (node.as<InputOp>()) continue;
      varies[i] = !is_function(node) || !bytes_of(node.type) ||
                  std::ranges::any_of(node.operands, [&](NodeId x) { return varies[x.index]; });
      if (varies[i]) continue;
      for (const NodeId x : node.operands)
        sources_[i].insert(sources_[x.index].begin(), sources_[x.index].end());
      varies[i] = sources_[i].size() > kMostSources;
      if (varies[i]) sources_[i].clear();
    }
  }

  bool is_small_enough(NodeId id) const {
    const std::set<size_t>& sources = sources_[id.index];
    if (sources.empty()) return false;
    int64_t most = kSmallBytes;
    int64_t read = 0;
    for (const size_t source : sources) read += *bytes_of(graph_[graph_.inputs()[source]].type);
    return *bytes_of(graph_[id].type) <= std::max(most, read);
  }

  // Whether a value that needs no panels is prepared. Of a moved value, the operand is prepared,
  // and not the result of the movement.
  bool is_worth_preparing(NodeId id) const {
    const Node& node = graph_[id];
    return !sources_[id.index].empty() &&
           (node.as<InputOp>() || (!is_map(node) && is_small_enough(id)));
  }

  // The panels of the second factor of a product, if it should have panels.
  std::optional<Panels> panels_of(const Node& node) const {
    const auto* dot = node.as<DotOp>();
    if (!dot || target_.kind == TargetKind::Gpu) return std::nullopt;
    const NodeId factor = node.operands[1];
    const TensorType& type = graph_[factor].type;
    if (!is_floating(type.dtype) || !is_small_enough(factor)) return std::nullopt;
    const auto columns = free_axes(*dot, 1, type.shape);
    if (columns.size() != 1 || dot->contract_right.empty()) return std::nullopt;
    Expr rows(1);
    const Shape& left = graph_[node.operands[0]].type.shape;
    for (const int64_t axis : free_axes(*dot, 0, left))
      rows = rows * left[static_cast<size_t>(axis)];
    const int64_t extent = *type.shape[static_cast<size_t>(columns[0])].as_constant();
    const int64_t width = target_.panel_columns();
    // A factor that stays in the second-level cache is read fast without panels if its columns are
    // its last axis in memory.
    const bool is_last =
        !is_map(graph_[factor]) && columns[0] + 1 == static_cast<int64_t>(type.shape.rank());
    const bool is_large = *bytes_of(type) > target_.l2_bytes / 4;
    if (rows.range().max < kLeastRows || extent <= width || (is_last && !is_large))
      return std::nullopt;
    return Panels{dot->batch_right, dot->contract_right, columns[0], width,
                  (extent + width - 1) / width};
  }

  // Finds, from the outputs backwards, which nodes a call computes, and which prepared values it
  // takes.
  void find_prepared() {
    computed_.resize(graph_.size());
    taken_.resize(graph_.size());
    const auto need = [&](NodeId id) {
      (is_worth_preparing(id) ? taken_ : computed_)[id.index] = true;
    };
    for (const GraphOutput& output : graph_.outputs()) need(output.node);
    for (size_t i = graph_.size(); i-- > 0;) {
      if (has_side_effects(graph_[NodeId(i)])) computed_[i] = true;
      if (!computed_[i]) continue;
      const Node& node = graph_[NodeId(i)];
      if (const auto panels = panels_of(node)) {
        panels_.emplace(NodeId(i), *panels);
        need(node.operands[0]);
      } else {
        for (const NodeId operand : node.operands) need(operand);
      }
    }
  }

  std::string unused(std::string name) const {
    const std::string first = name;
    for (int i = 2; graph_.find_input(name) || result_.find_input(name); ++i)
      name = fmt::format("{}-{}", first, i);
    return name;
  }

  // The input that takes a value that is made from weights once; in panels, if `panels` is given.
  NodeId prepared(NodeId id, const Panels* panels) {
    const auto key = std::pair(id, panels ? *panels : Panels{});
    const auto [known, is_new] = inputs_.try_emplace(key);
    if (!is_new) return known->second;
    const Node& node = graph_[id];
    PreparedWeight made{.name = {}, .graph = Graph("prepared"), .sources = {}};
    NodeId value = copy(id, made);
    if (panels) value = panels->make(made.graph, value);
    made.graph.set_outputs({{value, "value", {}}});
    if (made.is_source()) {
      made.name = node.as<InputOp>()->name;
    } else {
      const auto* input = graph_[graph_.inputs()[made.sources[0]]].as<InputOp>();
      const std::string name = node.label.empty() ? input->name : node.label;
      made.name = unused(panels ? fmt::format("{}.panels{}", name, panels->width)
                                : fmt::format("{}.prepared", name));
    }
    known->second = build::input(result_, made.name, made.graph[value].type);
    weights_.push_back(std::move(made));
    return known->second;
  }

  // Copies a value, and everything on which it depends, to `made`. Equal computations make equal
  // graphs, whatever their names and locations are, so that they are compiled once.
  NodeId copy(NodeId id, PreparedWeight& made) const {
    std::set<NodeId> needed{id};
    std::vector<NodeId> open{id};
    while (!open.empty()) {
      const NodeId next = open.back();
      open.pop_back();
      for (const NodeId operand : graph_[next].operands)
        if (needed.insert(operand).second) open.push_back(operand);
    }
    std::map<NodeId, NodeId> copies;
    for (const NodeId next : needed) {  // operands come before users
      Node node = graph_[next];
      node.location = {};
      node.label.clear();
      if (node.as<InputOp>()) {
        const auto input = std::ranges::find(graph_.inputs(), next) - graph_.inputs().begin();
        node.op = InputOp{fmt::format("w{}", made.sources.size())};
        made.sources.push_back(static_cast<size_t>(input));
      }
      std::vector<NodeId> operands;
      for (const NodeId operand : node.operands) operands.push_back(copies.at(operand));
      copies[next] = build::rebuild(made.graph, node, std::move(operands));
    }
    return copies.at(id);
  }

  void build_rest() {
    std::vector<NodeId> copies(graph_.size());
    for (size_t i = 0; i < first_weight_; ++i)
      copies[graph_.inputs()[i].index] = build::rebuild(result_, graph_[graph_.inputs()[i]], {});
    for (size_t i = 0; i < graph_.size(); ++i) {
      const Node& node = graph_[NodeId(i)];
      if (taken_[i]) copies[i] = prepared(NodeId(i), nullptr);
      if (!computed_[i] || node.as<InputOp>()) continue;
      const auto panels = panels_.find(NodeId(i));
      if (panels != panels_.end()) {
        copies[i] = product(node, copies[node.operands[0].index], panels->second);
        result_.set_label(copies[i], node.label);
        continue;
      }
      std::vector<NodeId> operands;
      for (const NodeId operand : node.operands) operands.push_back(copies[operand.index]);
      copies[i] = build::rebuild(result_, node, std::move(operands));
    }
    std::vector<GraphOutput> outputs = graph_.outputs();
    for (GraphOutput& output : outputs) output.node = copies[output.node.index];
    result_.set_outputs(std::move(outputs));
  }

  NodeId product(const Node& node, NodeId left, const Panels& panels) {
    const NodeId factor = node.operands[1];
    const Expr columns = graph_[factor].type.shape[static_cast<size_t>(panels.free)];
    const NodeId right = panels.read(result_, prepared(factor, &panels), columns, node.location);
    DotOp dot = *node.as<DotOp>();
    dot.batch_right = axes_from(0, panels.batch.size());
    dot.contract_right =
        axes_from(static_cast<int64_t>(panels.batch.size()), panels.contract.size());
    return build::dot(result_, left, right, dot, node.type.dtype, node.location);
  }

  const Graph& graph_;
  const size_t first_weight_;
  const Target& target_;
  std::vector<std::set<size_t>> sources_;  // by node that depends on weights alone: these weights
  std::vector<bool> computed_, taken_;     // by node: whether a call computes or takes it
  std::map<NodeId, Panels> panels_;        // of the second factors of products
  std::map<std::pair<NodeId, Panels>, NodeId> inputs_;
  Graph result_;
  std::vector<PreparedWeight> weights_;
};

}  // namespace

bool PreparedWeight::is_source() const {
  return graph[graph.outputs()[0].node].as<InputOp>() != nullptr;
}

Prepared prepare(const Graph& graph, size_t first_weight, const Target& target) {
  return Preparation(graph, first_weight, target).run();
}

}  // namespace braze
