#include "compiler/passes/join_groups.h"

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>

#include "compiler/passes/narrow_dots.h"
#include "compiler/passes/product_prices.h"
#include "compiler/passes/split_dots.h"
#include "ir/graph/axis_lists.h"
#include "ir/graph/build.h"
#include "ir/graph/reordered.h"
#include "ir/graph/rewrite.h"
#include "ir/target/features.h"

namespace braze {

namespace {

using Dims = std::vector<Expr>;

// Channels of joined groups: enough for most of a line of memory, and no more than two tiles.
constexpr int64_t kLeastChannels = 48, kMostChannels = 256;
constexpr int64_t kChannelMultiple = 8;  // 16 or 32 bytes

// One factor: its batched and its summed axes.
struct Side {
  NodeId node;
  Shape shape;
  Axes batch, contract;

  // The factor as it is before it is transposed, if its free axes keep their order.
  static Side of(const Graph& graph, NodeId node, Axes batch, Axes contract) {
    Side out{node, graph[node].type.shape, std::move(batch), std::move(contract)};
    while (const auto* transpose = graph[out.node].as<TransposeOp>()) {
      const auto inner = [&](Axes axes) {
        for (int64_t& axis : axes) axis = transpose->permutation[static_cast<size_t>(axis)];
        return axes;
      };
      const NodeId source = graph[out.node].operands[0];
      Side next{source, graph[source].type.shape, inner(out.batch), inner(out.contract)};
      if (inner(out.free()) != next.free()) break;
      out = std::move(next);
    }
    return out;
  }

  int64_t last() const { return static_cast<int64_t>(shape.rank()) - 1; }
  Axes free() const { return other_axes(shape.rank(), batch, contract); }
  Expr extent(int64_t axis) const { return shape[static_cast<size_t>(axis)]; }
  int64_t number(int64_t axis) const { return *extent(axis).as_constant(); }
  // Whether the groups lie side by side, each with its last axis.
  bool has_groups_last(size_t batched) const {
    return batched < batch.size() && batch[batched] + 1 == last();
  }
};

class GroupedProduct {
 public:
  GroupedProduct(const Rewriting& step, const DotOp& dot)
      : graph_(step.result),
        node_(step.node),
        dot_(dot),
        sides_{Side::of(graph_, step.operands[0], dot.batch_left, dot.contract_left),
               Side::of(graph_, step.operands[1], dot.batch_right, dot.contract_right)} {
    std::tie(dot_.batch_left, dot_.contract_left) = std::tie(sides_[0].batch, sides_[0].contract);
    std::tie(dot_.batch_right, dot_.contract_right) = std::tie(sides_[1].batch, sides_[1].contract);
    if (!sides_[0].shape.is_static() || !sides_[1].shape.is_static()) return;
    for (size_t batched = 0; batched < dot.batch_left.size() && !batched_; ++batched) {
      const std::array last{sides_[0].has_groups_last(batched), sides_[1].has_groups_last(batched)};
      const auto sums_last = [&](size_t side) {
        return last[side] && contains(sides_[side].contract, sides_[side].last());
      };
      const auto keeps_last = [&](size_t side) {
        return last[side] && contains(sides_[side].free(), sides_[side].last());
      };
      // The factor with more results stays as it is.
      const bool keeps_left = !sums_last(1) || results_of(sides_[0]) >= results_of(sides_[1]);
      summed_ = sums_last(0) && keeps_left ? 0 : 1;
      if (sums_last(summed_) || (keeps_last(0) && keeps_last(1))) batched_ = batched;
      by_results_ = !sums_last(summed_);
    }
  }

  // The numbers of groups that may become one.
  std::vector<int64_t> choices() const {
    std::vector<int64_t> out;
    if (!batched_) return out;
    const int64_t groups = sides_[0].number(sides_[0].batch[*batched_]);
    const auto [left, right] = channels();
    for (int64_t joined = 2; joined <= groups; ++joined)
      if (groups % joined == 0 && joined * left % kChannelMultiple == 0 &&
          joined * right % kChannelMultiple == 0 &&
          joined * std::max(left, right) >= kLeastChannels &&
          joined * std::max(left, right) <= kMostChannels)
        out.push_back(joined);
    return out;
  }

  NodeId joined(int64_t groups) const {
    return by_results_ ? of_results(groups) : of_blocks(groups);
  }

 private:
  // How many results one group of a factor has for each of the other.
  static int64_t results_of(const Side& side) {
    int64_t out = 1;
    for (const int64_t axis : side.free()) out *= side.number(axis);
    return out;
  }

  // The channels of a group in both factors.
  std::pair<int64_t, int64_t> channels() const {
    if (by_results_)
      return {sides_[0].number(sides_[0].last()), sides_[1].number(sides_[1].last())};
    const Side& side = sides_[summed_];
    return {side.number(side.last()), results_of(sides_[1 - summed_])};
  }

  Dims result_dims() const { return node_.type.shape.dims(); }
  // The number of the axis of groups in the result.
  size_t result_axis() const { return *batched_; }

  // The factor with fewer groups, each with more channels.
  NodeId widened(const Side& side, int64_t groups) const {
    Dims dims = side.shape.dims();
    dims[dims.size() - 2] = floordiv(dims[dims.size() - 2], groups);
    dims.back() *= groups;
    return build::reshape(graph_, side.node, Shape(std::move(dims)), node_.location);
  }

  // The factor whose groups are blocks on the diagonal of matrices. Its axes are those of other
  // batches and sums, then groups, what is summed, and what is not.
  NodeId blocks(const Side& side, int64_t channel, int64_t groups, Axes& batch,
                Axes& contract) const {
    const int64_t group = side.batch[*batched_];
    Dims split = side.shape.dims();
    split[static_cast<size_t>(group)] = floordiv(split[static_cast<size_t>(group)], groups);
    split.insert(split.begin() + group + 1, groups);
    NodeId x = build::reshape(graph_, side.node, Shape(split), node_.location);
    const auto moved = [&](int64_t axis) { return axis + (axis > group); };
    const Axes free = side.free();
    Axes order;
    for (int64_t axis = 0; axis <= side.last(); ++axis)
      if (axis != group && axis != channel && !contains(free, axis)) order.push_back(axis);
    const auto others = static_cast<int64_t>(order.size());
    for (Axes* axes : {&batch, &contract})
      for (int64_t& axis : *axes)
        axis = axis == group     ? others
               : axis == channel ? others + 1
                                 : std::ranges::find(order, axis) - order.begin();
    for (int64_t& axis : order) axis = moved(axis);
    order.insert(order.end(), {group, moved(channel), group + 1});
    for (const int64_t axis : free) order.push_back(moved(axis));
    x = build::transpose(graph_, x, order, node_.location);
    // The axes are now: others, groups, summed, joined, results. The rows of blocks come before
    // what is summed.
    Dims dims = graph_[x].type.shape.dims();
    const Dims own = dims;
    dims.insert(dims.begin() + others + 1, groups);
    Axes kept = axes_from(0, own.size());
    for (int64_t& axis : kept) axis += axis > others;
    x = build::broadcast(graph_, x, Shape(std::move(dims)), kept, node_.location);
    Dims flat(own.begin(), own.begin() + others + 1);
    const Expr channels = own[static_cast<size_t>(others) + 1];
    Expr results = 1;
    for (size_t axis = static_cast<size_t>(others) + 3; axis < own.size(); ++axis)
      results *= own[axis];
    flat.insert(flat.end(), {channels * groups, results * groups});
    const Shape all(std::move(flat));
    x = build::reshape(graph_, x, all, node_.location);
    // Of which of the joined groups a row is, and of which a column.
    const Shape matrix({channels * groups, results * groups});
    const auto group_of = [&](int64_t axis, const Expr& own_extent) {
      const NodeId each = build::broadcast(
          graph_,
          build::scalar(graph_, DType::I32, static_cast<double>(*own_extent.as_constant()),
                        node_.location),
          matrix, {}, node_.location);
      const NodeId index = build::iota(graph_, {DType::I32, matrix}, axis, node_.location);
      return build::map(graph_, ElementwiseOp::div, {index, each}, node_.location);
    };
    const NodeId same = build::map(graph_, ElementwiseOp::eq,
                                   {group_of(0, channels), group_of(1, results)}, node_.location);
    const NodeId zero =
        build::broadcast(graph_, build::scalar(graph_, graph_[x].type.dtype, 0, node_.location),
                         all, {}, node_.location);
    const NodeId on_diagonal =
        build::broadcast(graph_, same, all, {others + 1, others + 2}, node_.location);
    return build::map(graph_, ElementwiseOp::select, {on_diagonal, x, zero}, node_.location);
  }

  // Channels are summed.
  NodeId of_blocks(int64_t groups) const {
    const Side &side = sides_[summed_], &other = sides_[1 - summed_];
    const auto pair =
        static_cast<size_t>(std::ranges::find(side.contract, side.last()) - side.contract.begin());
    DotOp dot = dot_;
    const NodeId x = widened(side, groups);
    const NodeId y =
        blocks(other, other.contract[pair], groups, summed_ == 0 ? dot.batch_right : dot.batch_left,
               summed_ == 0 ? dot.contract_right : dot.contract_left);
    const NodeId product = build::dot(graph_, summed_ == 0 ? x : y, summed_ == 0 ? y : x, dot,
                                      node_.type.dtype, node_.location);
    // The result has one axis for what the factor of blocks does not sum: the joined groups, and
    // their channels.
    const Dims wanted = result_dims();
    const size_t batches = dot_.batch_left.size(), of_other = other.free().size();
    const size_t first = summed_ == 0 ? wanted.size() - of_other : batches;
    Dims split = wanted;
    split[result_axis()] = floordiv(split[result_axis()], groups);
    split.insert(split.begin() + static_cast<std::ptrdiff_t>(first), groups);
    return regrouped(build::reshape(graph_, product, Shape(split), node_.location), first);
  }

  // Channels are results of both factors. Of the joined groups, each has results with itself.
  NodeId of_results(int64_t groups) const {
    const NodeId product =
        build::dot(graph_, widened(sides_[0], groups), widened(sides_[1], groups), dot_,
                   node_.type.dtype, node_.location);
    const Dims wanted = result_dims();
    const auto batches = static_cast<int64_t>(dot_.batch_left.size()),
               lefts = static_cast<int64_t>(sides_[0].free().size()),
               rank = static_cast<int64_t>(wanted.size());
    // The joined groups of each factor stand in front of its last axis.
    const int64_t left = batches + lefts - 1, right = rank;
    Dims split = wanted;
    split[result_axis()] = floordiv(split[result_axis()], groups);
    split.insert(split.begin() + left, groups);
    split.insert(split.begin() + right, groups);
    NodeId x = build::reshape(graph_, product, Shape(split), node_.location);
    Axes order = {left, right};
    for (int64_t axis = 0; axis < rank + 2; ++axis)
      if (axis != left && axis != right) order.push_back(axis);
    x = build::transpose(graph_, x, order, node_.location);
    Dims dims = graph_[x].type.shape.dims();
    dims.erase(dims.begin());
    dims[0] = groups * groups;
    x = build::reshape(graph_, x, Shape(dims), node_.location);
    Dims limits = dims;
    std::vector<int64_t> strides(dims.size(), 1);
    strides[0] = groups + 1;
    x = build::slice(graph_, x, Dims(dims.size(), 0), limits, strides, node_.location);
    return regrouped(x, 0);
  }

  // Joins axis `from`, the joined groups, with the axis of groups before which all other axes of
  // the result are in order.
  NodeId regrouped(NodeId x, size_t from) const {
    const auto rank = static_cast<int64_t>(graph_[x].type.shape.rank());
    Axes order;
    for (int64_t axis = 0; axis < rank; ++axis)
      if (axis != static_cast<int64_t>(from)) order.push_back(axis);
    order.insert(order.begin() + static_cast<std::ptrdiff_t>(result_axis()) + 1,
                 static_cast<int64_t>(from));
    if (!std::ranges::is_sorted(order)) x = build::transpose(graph_, x, order, node_.location);
    return build::reshape(graph_, x, node_.type.shape, node_.location);
  }

  Graph& graph_;
  const Node& node_;
  DotOp dot_;  // of the factors before they are transposed
  std::array<Side, 2> sides_;
  std::optional<size_t> batched_;  // which of the batched axes is that of groups
  bool by_results_ = false;        // whether channels are results of both factors
  size_t summed_ = 0;              // the factor in which groups lie side by side and are summed
};

bool may_be_joined(const Graph& graph, const Node& node, const DotOp& dot) {
  const TensorType& left = graph[node.operands[0]].type;
  if (dot.batch_left.empty() || left.dtype != graph[node.operands[1]].type.dtype) return false;
  if (!is_half(left.dtype) && !(dot.tf32 && left.dtype == DType::F32)) return false;
  if (!node.type.shape.is_static() || !left.shape.is_static()) return false;
  auto work = static_cast<double>(node.type.shape.numel().range().max);
  for (const int64_t axis : dot.contract_left)
    work *= static_cast<double>(left.shape[static_cast<size_t>(axis)].range().max);
  return work >= kLeastAsynchronousDot;
}

}  // namespace

Graph join_groups(const Graph& graph, const Target& target) {
  if (target.matrix_speed == 0) return graph;
  ProductPrices prices(target, Precision::Standard);
  return rewrite(graph, [&](const Rewriting& step) {
    const auto* dot = step.node.as<DotOp>();
    if (!dot || !may_be_joined(step.source, step.node, *dot)) return step.keep();
    const GroupedProduct product(step, *dot);
    const std::vector<int64_t> choices = product.choices();
    if (choices.empty()) return step.keep();
    const Graph apart = alone(step);
    // What the passes after this one make of both.
    const auto seconds_of = [&](const Graph& form) {
      const Graph narrow = narrow_dots(form);
      return prices.of(target.asynchronous_dots ? split_dots(narrow, target) : narrow).seconds;
    };
    double least = seconds_of(apart);
    int64_t best = 1;
    for (const int64_t groups : choices) {
      const Graph joined = rewrite(apart, [&](const Rewriting& inner) {
        const auto* same = inner.node.as<DotOp>();
        return same ? GroupedProduct(inner, *same).joined(groups) : inner.keep();
      });
      const double seconds = seconds_of(joined);
      if (seconds < least) least = seconds, best = groups;
    }
    return best > 1 ? product.joined(best) : step.keep();
  });
}

}  // namespace braze
