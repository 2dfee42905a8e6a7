#include "frontend/builder/checked.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "ir/graph/build.h"
#include "ir/graph/interpret.h"
#include "ir/graph/rewrite.h"
#include "ir/graph/sizes.h"
#include "ir/support/text.h"

namespace braze {

namespace {

constexpr int64_t kNowhere = std::numeric_limits<int64_t>::max();

// How bad a value is. An op went wrong if its result is worse than each of its operands.
enum Level : int64_t { kFinite, kInfinite, kNan };
// One number says which value went wrong: the source's node times kNodes, plus the element's
// row-major number times kLevels, plus the level. The least such number belongs to the first value
// that went wrong.
constexpr int64_t kLevels = 4;
constexpr int64_t kNodes = int64_t{1} << 44;
// One reduction serves at most this many ops. In longer regions each mark waits for all marks
// before it, and fusion takes twice as long.
constexpr int kMostNodes = 8;
// The weight of a NaN among added values. It is so great that the sum of the weights of all
// infinities is small beside it.
constexpr int64_t kNanWeight = int64_t{1} << 40;

/// True for ops whose result is an operand, bit for bit.
bool passes_on(ElementwiseOp op) {
  using enum ElementwiseOp;
  return op == select || op == min || op == max || op == neg || op == abs || op == bitcast;
}

/// The position of the operand that holds indices, if the node has one.
std::optional<size_t> index_operand(const Node& node) {
  if (node.as<GatherOp>() || node.as<ScatterOp>()) return 1;
  return std::nullopt;
}

int64_t indexed_axis(const Node& node) {
  const auto* gather = node.as<GatherOp>();
  return gather ? gather->axis : node.as<ScatterOp>()->axis;
}

bool is_empty(const Shape& shape) {
  return std::any_of(shape.begin(), shape.end(), [](const Expr& e) { return e.is_constant(0); });
}

std::vector<int64_t> all_axes(const Shape& shape) {
  std::vector<int64_t> axes(shape.rank());
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

/// Builds nodes over whole tensors in the notation of scalars. All of them get one source line.
class Notation {
 public:
  Notation(Graph& graph, SourceLocation where) : graph_(graph), where_(where) {}

  NodeId map(ElementwiseOp op, std::vector<NodeId> operands) const {
    return build::map(graph_, op, std::move(operands), where_);
  }
  NodeId both(NodeId a, NodeId b) const { return map(ElementwiseOp::logical_and, {a, b}); }
  NodeId either(NodeId a, NodeId b) const { return map(ElementwiseOp::logical_or, {a, b}); }
  NodeId none(NodeId a) const { return map(ElementwiseOp::logical_not, {a}); }
  NodeId where(NodeId c, NodeId a, NodeId b) const { return map(ElementwiseOp::select, {c, a, b}); }
  NodeId integer(int64_t value) const {
    return build::scalar_bits(graph_, DType::I64, static_cast<uint64_t>(value), where_);
  }
  /// For every element: `nan`, `infinite`, or 0 if it is finite.
  NodeId level(NodeId x, int64_t infinite = kInfinite, int64_t nan = kNan) const {
    // x - x is NaN unless x is finite.
    const NodeId is_not_finite = map(ElementwiseOp::is_nan, {map(ElementwiseOp::sub, {x, x})});
    return where(map(ElementwiseOp::is_nan, {x}), integer(nan),
                 where(is_not_finite, integer(infinite), integer(kFinite)));
  }

  NodeId reduce(Monoid monoid, NodeId x, const std::vector<int64_t>& axes) const {
    return axes.empty() ? x : build::reduce(graph_, monoid, x, axes, where_);
  }
  /// Combines all elements.
  NodeId reduce(Monoid monoid, NodeId x) const {
    return reduce(monoid, x, all_axes(graph_[x].type.shape));
  }

  /// The row-major number of every element.
  NodeId numbers(const Shape& shape) const {
    const std::vector<Expr> strides = row_major_strides(shape);
    NodeId sum = build::broadcast(graph_, integer(0), shape, {}, where_);
    for (size_t axis = 0; axis < shape.rank(); ++axis) {
      const NodeId along =
          build::iota(graph_, {DType::I64, shape}, static_cast<int64_t>(axis), where_);
      const NodeId stride = build::size(graph_, strides[axis], where_);
      sum = map(ElementwiseOp::add, {sum, map(ElementwiseOp::mul, {along, stride})});
    }
    return sum;
  }

 private:
  Graph& graph_;
  SourceLocation where_;
};

}  // namespace

/// Copies the source, with every index clamped to its axis, and then appends the checks.
class CheckedGraph::Builder {
 public:
  explicit Builder(CheckedGraph& out)
      : out_(out),
        source_(out.source_),
        graph_(out.graph_),
        copies_(source_.size()),
        demands_(source_.size()),
        is_constant_(source_.size()),
        leaves_constants_(source_.size()),
        region_of_(source_.size()) {}

  void run() {
    copy();
    out_.of_constants_ = is_constant_;
    find_demands();
    std::vector<GraphOutput> outputs = source_.outputs();
    for (GraphOutput& output : outputs) output.node = copies_[output.node.index];
    out_.result_count_ = outputs.size();
    for (size_t i = 0; i < source_.size(); ++i) {
      const NodeId id(i);
      if (!demands_[i].any) continue;
      if (index_operand(source_[id])) check_indices(id, outputs);
      if (is_arithmetic_float(source_[id].type.dtype)) check_values(id);
    }
    out_.first_value_ = outputs.size();
    for (const Region& region : regions_) outputs.push_back({first_place(region), {}, {}});
    graph_.set_outputs(std::move(outputs));
  }

 private:
  /// Which elements of a value are read.
  struct Demand {
    bool any = false;
    std::optional<NodeId> only;  ///< true for the elements that are read; nullopt: all
  };

  void copy() {
    for (const NodeId input : source_.inputs())
      copies_[input.index] = build::rebuild(graph_, source_[input], {});
    const std::vector<bool> needed = needed_nodes(source_);
    for (size_t i = 0; i < source_.size(); ++i) {
      const Node& node = source_[NodeId(i)];
      if (!needed[i] || node.as<InputOp>()) continue;
      is_constant_[i] = node.as<ConstantOp>() != nullptr;
      std::vector<NodeId> operands;
      for (const NodeId operand : node.operands) operands.push_back(copies_[operand.index]);
      if (!operands.empty())
        is_constant_[i] = std::all_of(node.operands.begin(), node.operands.end(),
                                      [&](NodeId operand) { return is_constant_[operand.index]; });
      if (!is_constant_[i])
        for (const NodeId operand : node.operands) leaves_constants_[operand.index] = true;
      if (const auto index = index_operand(node)) operands[*index] = clamped(node);
      copies_[i] = build::rebuild(graph_, node, std::move(operands));
    }
  }

  /// The indices of `node` as i64, which can represent every extent.
  NodeId wide_indices(const Node& node) {
    return build::convert(graph_, copies_[node.operands[1].index], DType::I64, node.location);
  }
  /// The last valid index of the axis that `node` indexes.
  NodeId last_index(const Node& node) {
    const Shape& shape = source_[node.operands[0]].type.shape;
    return build::size(graph_, shape[static_cast<size_t>(indexed_axis(node))] - 1, node.location);
  }
  NodeId clamped(const Node& node) {
    const Notation n(graph_, node.location);
    const NodeId below = n.map(ElementwiseOp::min, {wide_indices(node), last_index(node)});
    return n.map(ElementwiseOp::max, {below, n.integer(0)});
  }

  void find_demands() {
    for (const GraphOutput& output : source_.outputs()) {
      demands_[output.node.index] = {true, {}};
      leaves_constants_[output.node.index] = true;
    }
    for (size_t i = source_.size(); i-- > 0;) {
      const Node& node = source_[NodeId(i)];
      const Demand demand = demands_[i];
      if (!demand.any || is_empty(node.type.shape)) continue;
      const auto* map = node.as<MapOp>();
      if (map && map->op == ElementwiseOp::select) {
        const Notation n(graph_, node.location);
        const NodeId condition = copies_[node.operands[0].index];
        add_demand(node.operands[0], {true, {}});
        add_demand(node.operands[1], narrowed(demand, condition, n));
        add_demand(node.operands[2], narrowed(demand, n.none(condition), n));
      } else {
        for (const NodeId operand : node.operands)
          add_demand(operand, map ? demand : Demand{true, {}});
      }
    }
  }
  static Demand narrowed(const Demand& demand, NodeId condition, const Notation& n) {
    return {true, demand.only ? n.both(*demand.only, condition) : condition};
  }
  void add_demand(NodeId id, const Demand& more) {
    Demand& demand = demands_[id.index];
    if (!demand.any)
      demand = more;
    else if (!demand.only || !more.only)
      demand.only.reset();
    else
      demand.only = Notation(graph_, source_[id].location).either(*demand.only, *more.only);
  }

  void check_indices(NodeId id, std::vector<GraphOutput>& outputs) {
    const Node& node = source_[id];
    const Notation n(graph_, node.location);
    const NodeId indices = wide_indices(node);
    const NodeId wrong = n.either(n.map(ElementwiseOp::lt, {indices, n.integer(0)}),
                                  n.map(ElementwiseOp::gt, {indices, last_index(node)}));
    const NodeId numbers = n.numbers(source_[node.operands[1]].type.shape);
    const NodeId place = n.reduce(Monoid::Min, n.where(wrong, numbers, n.integer(kNowhere)));
    const NodeId is_there = n.map(ElementwiseOp::eq, {numbers, place});
    const NodeId index = n.reduce(Monoid::Sum, n.where(is_there, indices, n.integer(0)));
    out_.index_checks_.push_back({id, outputs.size()});
    outputs.push_back({place, {}, {}});
    outputs.push_back({index, {}, {}});
  }

  /// Ops over one shape that read each other's results. One reduction serves all of them.
  struct Region {
    const Node* first;
    int nodes;     ///< the number of marked nodes
    NodeId marks;  ///< for each element: kNodes times the first wrong node, plus its level
  };

  void check_values(NodeId id) {
    const Node& node = source_[id];
    const Notation n(graph_, node.location);
    std::optional<size_t>& region = region_of_[id.index];
    for (const NodeId operand : node.operands)
      if (!region && source_[operand].type.shape == node.type.shape)
        region = region_of_[operand.index];

    const NodeId level = n.level(copies_[id.index]);
    NodeId is_wrong;
    if (node.as<InputOp>() || is_constant_[id.index]) {
      if (is_constant_[id.index] && !leaves_constants_[id.index]) return;
      is_wrong = n.map(ElementwiseOp::eq, {level, n.integer(kNan)});
    } else {
      const std::optional<NodeId> before = operands(node, n);
      if (!before) return;
      is_wrong = n.map(ElementwiseOp::gt, {level, *before});
    }
    if (const auto& only = demands_[id.index].only) is_wrong = n.both(is_wrong, *only);
    const NodeId mark =
        n.map(ElementwiseOp::add, {level, n.integer(static_cast<int64_t>(id.index) * kNodes)});
    const NodeId marks = n.where(is_wrong, mark, n.integer(kNowhere));
    if (!region || regions_[*region].nodes == kMostNodes) {
      region = regions_.size();
      regions_.push_back({&node, 1, marks});
    } else {
      Region& joined = regions_[*region];
      ++joined.nodes;
      joined.marks = n.map(ElementwiseOp::min, {joined.marks, marks});
    }
  }

  NodeId first_place(const Region& region) {
    const Notation n(graph_, region.first->location);
    const NodeId numbers =
        n.map(ElementwiseOp::mul, {n.numbers(region.first->type.shape), n.integer(kLevels)});
    const NodeId places = n.map(ElementwiseOp::add, {region.marks, numbers});
    const NodeId is_marked = n.map(ElementwiseOp::lt, {region.marks, n.integer(kNowhere)});
    return n.reduce(Monoid::Min, n.where(is_marked, places, n.integer(kNowhere)));
  }

  /// For each element of a result, the worst level among the operands it is made of. It is empty
  /// for ops that make no new values.
  std::optional<NodeId> operands(const Node& node, const Notation& n) {
    if (const auto* map = node.as<MapOp>()) {
      if (passes_on(map->op)) return std::nullopt;
      return worst(node, n, [](NodeId levels, size_t) { return levels; });
    }
    if (const auto* reduce = node.as<ReduceOp>()) {
      if (reduce->monoid != Monoid::Sum && reduce->monoid != Monoid::Prod) return std::nullopt;
      return worst(node, n,
                   [&](NodeId levels, size_t) { return worst_along(levels, reduce->axes, n); });
    }
    if (const auto* dot = node.as<DotOp>()) {
      return worst(node, n, [&](NodeId levels, size_t i) {
        return along_contraction(levels, node, *dot, /*is_left=*/i == 0);
      });
    }
    if (const auto* scatter = node.as<ScatterOp>()) {
      // Other scatters than sums and products only choose among numbers that were there before.
      if (scatter->monoid != Monoid::Sum && scatter->monoid != Monoid::Prod) return std::nullopt;
      return of_scatter(node, n);
    }
    return std::nullopt;
  }

  /// The worst level along the axes. An empty axis counts as finite.
  NodeId worst_along(NodeId levels, const std::vector<int64_t>& axes, const Notation& n) {
    return n.map(ElementwiseOp::max, {n.reduce(Monoid::Max, levels, axes), n.integer(kFinite)});
  }

  /// The worst level of the floating operands. `spread(levels, operand)` brings the levels of each
  /// operand to the result's shape.
  template <class Spread>
  NodeId worst(const Node& node, const Notation& n, Spread&& spread) {
    std::optional<NodeId> out;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      if (!is_arithmetic_float(source_[node.operands[i]].type.dtype)) continue;
      const NodeId levels = spread(n.level(copies_[node.operands[i].index]), i);
      out = out ? n.map(ElementwiseOp::max, {*out, levels}) : levels;
    }
    return out ? *out
               : build::broadcast(graph_, n.integer(kFinite), node.type.shape, {}, node.location);
  }

  /// For every element of a product, the worst level in the row (or column) that it is made of.
  NodeId along_contraction(NodeId levels, const Node& node, const DotOp& dot, bool is_left) {
    const std::vector<int64_t>& batch = is_left ? dot.batch_left : dot.batch_right;
    const std::vector<int64_t>& contract = is_left ? dot.contract_left : dot.contract_right;
    const auto rank = static_cast<int64_t>(graph_[levels].type.shape.rank());
    std::vector<int64_t> kept = batch;
    for (int64_t axis = 0; axis < rank; ++axis)
      if (std::find(batch.begin(), batch.end(), axis) == batch.end() &&
          std::find(contract.begin(), contract.end(), axis) == contract.end())
        kept.push_back(axis);
    std::vector<int64_t> order = kept;
    order.insert(order.end(), contract.begin(), contract.end());
    NodeId out = build::transpose(graph_, levels, order, node.location);
    if (!contract.empty()) {
      std::vector<int64_t> last(contract.size());
      std::iota(last.begin(), last.end(), static_cast<int64_t>(kept.size()));
      out = worst_along(out, last, Notation(graph_, node.location));
    }
    // The left operand's free axes come before those of the right operand.
    const size_t free = kept.size() - batch.size();
    const size_t begin = is_left ? batch.size() : node.type.shape.rank() - free;
    std::vector<int64_t> axes(kept.size());
    std::iota(axes.begin(), axes.begin() + static_cast<std::ptrdiff_t>(batch.size()), 0);
    std::iota(axes.begin() + static_cast<std::ptrdiff_t>(batch.size()), axes.end(),
              static_cast<int64_t>(begin));
    return build::broadcast(graph_, out, node.type.shape, axes, node.location);
  }

  /// The levels are scattered like the numbers. They become weights, so that the sum of several
  /// still tells whether a NaN or an infinity was among them.
  NodeId of_scatter(const Node& node, const Notation& n) {
    const auto weights = [&](size_t operand) {
      return n.level(copies_[node.operands[operand].index], 1, kNanWeight);
    };
    const NodeId sum = build::scatter_add(graph_, weights(0), clamped(node), weights(2),
                                          indexed_axis(node), node.location);
    const auto least = [&](int64_t weight) {
      return n.map(ElementwiseOp::ge, {sum, n.integer(weight)});
    };
    return n.where(least(kNanWeight), n.integer(kNan),
                   n.where(least(1), n.integer(kInfinite), n.integer(kFinite)));
  }

  CheckedGraph& out_;
  const Graph& source_;
  Graph& graph_;
  // Each of these has one entry for each node of the source.
  std::vector<NodeId> copies_;
  std::vector<Demand> demands_;
  std::vector<bool> is_constant_;
  std::vector<bool> leaves_constants_;  // an output, or read by a node that is no constant
  std::vector<std::optional<size_t>> region_of_;

  std::vector<Region> regions_;
};

CheckedGraph::CheckedGraph(const Graph& source) : source_(source), graph_(source.name()) {
  Builder(*this).run();
}

std::vector<Array> CheckedGraph::run(const Executable& executable,
                                     std::span<const Array> arguments) const {
  std::vector<std::vector<int64_t>> shapes;  // of arguments, which the call may consume
  for (const Array& argument : arguments) shapes.push_back(argument.shape());
  std::vector<Array> results = executable.run(arguments);
  const auto number = [&](size_t output) { return results[output].to_host().get_int(0); };
  int64_t value = kNowhere;
  for (size_t i = first_value_; i < results.size(); ++i) value = std::min(value, number(i));
  for (const IndexCheck& check : index_checks_) {
    const int64_t place = number(check.output);
    if (place == kNowhere || value / kNodes < static_cast<int64_t>(check.node.index)) continue;
    fail_index(check.node, place, number(check.output + 1), shapes);
  }
  if (value != kNowhere) fail_value(value, shapes);
  results.resize(result_count_);
  return results;
}

namespace {

/// Describes elements and types of one call in words.
class Words {
 public:
  Words(const Graph& graph, std::span<const std::vector<int64_t>> shapes) {
    std::vector<GivenShape> given;
    for (size_t i = 0; i < shapes.size(); ++i) {
      const Node& input = graph[graph.inputs()[i]];
      given.push_back({input.as<InputOp>()->name, &input.type.shape, shapes[i]});
    }
    sizes_ = bind_sizes(given, graph.symbols());
  }

  /// "[1, 3] of f32[2, 4]".
  std::string place(const TensorType& type, int64_t number) const {
    std::vector<int64_t> coordinates = sizes_(type.shape);
    for (size_t axis = coordinates.size(); axis-- > 0;) {
      const int64_t extent = coordinates[axis];
      coordinates[axis] = number % extent;
      number /= extent;
    }
    const auto text = [](int64_t i) { return std::to_string(i); };
    return fmt::format("[{}] of {}", join(coordinates, ", ", text), this->type(type));
  }
  std::string type(const TensorType& type) const {
    return TensorType{type.dtype, Shape::of(sizes_(type.shape))}.to_string();
  }

 private:
  Sizes sizes_;
};

}  // namespace

void CheckedGraph::fail_index(NodeId id, int64_t place, int64_t index,
                              std::span<const std::vector<int64_t>> shapes) const {
  const Node& node = source_[id];
  const Words words(source_, shapes);
  fail(codes::kIndexOutOfRange,
       fmt::format("{}: index {} at {} is not within axis {} of {}", op_name(node.op), index,
                   words.place(source_[node.operands[1]].type, place), indexed_axis(node),
                   words.type(source_[node.operands[0]].type)),
       {node.location, node.label, "give indices within the axis; unchecked calls clamp them"});
}

void CheckedGraph::fail_value(int64_t value, std::span<const std::vector<int64_t>> shapes) const {
  const Node& node = source_[NodeId(static_cast<size_t>(value / kNodes))];
  const bool is_nan = value % kLevels == kNan;
  const std::string place = Words(source_, shapes).place(node.type, value % kNodes / kLevels);
  if (const auto* input = node.as<InputOp>())
    fail(codes::kNotFinite,
         fmt::format("the argument {} is NaN at {}; no op made it", quote(input->name), place),
         {node.location, input->name, {}});
  if (of_constants_[static_cast<size_t>(value / kNodes)])
    fail(codes::kNotFinite,
         fmt::format("{}, computed from constants alone, is NaN at {}, and its value is used",
                     op_name(node.op), place),
         {node.location, node.label, {}});
  fail(codes::kNotFinite,
       fmt::format("{} makes {} at {} from operands that are {} there", op_name(node.op),
                   is_nan ? "NaN" : "infinity", place, is_nan ? "not NaN" : "finite"),
       {node.location, node.label, {}});
}

}  // namespace braze
