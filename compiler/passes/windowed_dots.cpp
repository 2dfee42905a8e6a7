#include "compiler/passes/windowed_dots.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "compiler/passes/moved_axes.h"
#include "compiler/passes/narrow_dots.h"
#include "compiler/passes/split_gaps.h"
#include "ir/graph/axis_lists.h"
#include "ir/graph/build.h"
#include "ir/graph/reference.h"
#include "ir/graph/rewrite.h"
#include "ir/graph/splat.h"

namespace braze {

namespace {

// Windows of a factor may show more places than the result of the product has, where they show only
// zeros. The product may then have as many times more multiply-adds: the result that it does not
// write and read again is worth some of them.
constexpr double kMostWork = 2;

double most(const Expr& extent) { return static_cast<double>(extent.range().max); }

bool is_widening(const Graph& graph, NodeId node) {
  const auto* map = graph[node].as<MapOp>();
  if (!map || map->op != ElementwiseOp::convert) return false;
  const DType from = graph[graph[node].operands[0]].type.dtype, to = graph[node].type.dtype;
  return is_half(from) && to == DType::F32;
}

// A sum over the taps of windows of a product, from the sum to the product.
struct WindowedDot {
  const Rewriting& step;
  int64_t least_terms;  // in a tap of a product in groups
  Graph& graph = step.result;
  SourceLocation where = step.node.location;
  NodeId windows = {}, product = {};
  std::vector<NodeId> moves = {};  // reshapes and transposes behind the windows, the last one first
  // By move, and then for the product: the windowed axes and taps in the order of the windows.
  std::vector<Axes> axes = {}, taps = {};

  // Whether the nodes have this form, and no other node reads them.
  bool find(const std::vector<int>& uses, const std::vector<bool>& relaxed) {
    const auto* sum = step.node.as<ReduceOp>();
    if (!sum || sum->monoid != Monoid::Sum) return false;
    // The same nodes in both graphs.
    NodeId node = step.operands[0], source = step.node.operands[0];
    const auto down = [&] {
      node = graph[node].operands[0];
      source = step.source[source].operands[0];
    };
    const auto alone = [&] {
      return uses[source.index] == 1 && step.source[source].op.index() == graph[node].op.index();
    };
    if (alone() && is_widening(graph, node)) down();
    const auto* op = graph[node].as<WindowsOp>();
    if (!op || !alone() || splat(graph, graph[node].operands[1]) != 0.0) return false;
    Axes sorted = op->taps;
    std::ranges::sort(sorted);
    if (sorted != sum->axes) return false;
    windows = node;
    axes.push_back(op->axes);
    taps.push_back(op->taps);
    for (down();; down()) {
      if (!alone()) return false;
      if (is_widening(graph, node)) continue;
      if (graph[node].as<DotOp>()) break;
      const auto moved = moved_axes(graph, node);
      if (moved.empty()) return false;
      for (auto* list : {&axes, &taps}) {
        Axes below;
        for (const int64_t axis : list->back()) {
          const auto found = std::ranges::find(moved, std::optional(axis));
          if (found == moved.end()) return false;
          below.push_back(found - moved.begin());
        }
        list->push_back(std::move(below));
      }
      moves.push_back(node);
    }
    product = node;
    return relaxed[source.index] || !is_floating(step.node.type.dtype);
  }

  // The axis of a factor for each axis of the result that comes from the factor alone or from both;
  // -1 for the others.
  Axes axes_of_factor(size_t side) const {
    const auto& dot = *graph[product].as<DotOp>();
    Axes out = batch(dot, side);
    for (const size_t s : {size_t{0}, size_t{1}})
      for (const int64_t axis : free_axes(dot, s, graph[graph[product].operands[s]].type.shape))
        out.push_back(s == side ? axis : -1);
    return out;
  }

  // Whether the product over windows has about as many multiply-adds as the product of which this
  // sum shows windows.
  bool pays() const {
    const auto& op = *graph[windows].as<WindowsOp>();
    const Shape& shape = graph[windows].type.shape;
    const Shape& from = graph[graph[windows].operands[0]].type.shape;
    double whole = 1, split = 1, before = 1, products = 1, all_taps = 1;
    bool splits = true;
    for (size_t i = 0; i < op.axes.size(); ++i) {
      const auto axis = static_cast<size_t>(op.axes[i]);
      const double places = most(shape[axis]);
      const double count = most(shape[static_cast<size_t>(op.taps[i])]);
      all_taps *= count;
      before *= most(from[axis]) * count;
      whole *= places * count;
      const auto residues = residues_of(op, i, shape[static_cast<size_t>(op.taps[i])]);
      splits = splits && residues.has_value();
      if (!splits) continue;
      double shown = 0;
      for (const auto& r : residues->taps) shown += static_cast<double>(r.count);
      split *= places * shown / static_cast<double>(residues->taps.size());
      products *= static_cast<double>(residues->taps.size());
    }
    const auto& dot = *graph[product].as<DotOp>();
    const Shape& left = graph[graph[product].operands[0]].type.shape;
    double work = most(graph[product].type.shape.numel());
    for (const int64_t axis : dot.contract_left) work *= most(left[static_cast<size_t>(axis)]);
    // The work of the new product is this times that of the old one.
    splits = splits && products <= static_cast<double>(kMostSplitGaps) &&
             work * split >= kLeastSplitGaps * before;
    return all_taps > 1 && (splits ? split : whole) <= kMostWork * before;
  }

  // Whether a product in groups with so many terms in a tap may be one over windows.
  bool is_wide_enough(int64_t terms) const {
    const auto& op = *graph[windows].as<WindowsOp>();
    int64_t all = terms;
    for (const int64_t tap : op.taps)
      all *= graph[windows].type.shape[static_cast<size_t>(tap)].range().max;
    return terms >= least_terms || (2 * terms >= least_terms && all <= kMostTermsOfNarrowDots);
  }

  // What a factor is a transpose of, as long as the order of its free axes stays; the numbers of
  // axes become those of the result. `lists` holds the windowed, the batched and the summed axes.
  NodeId without_transposes(NodeId factor, const std::array<Axes*, 3>& lists) const {
    while (const auto* transpose = graph[factor].as<TransposeOp>()) {
      const Axes& from = transpose->permutation;
      Axes free;
      for (const int64_t axis : other_axes(from.size(), *lists[1], *lists[2]))
        free.push_back(from[static_cast<size_t>(axis)]);
      if (!std::ranges::is_sorted(free)) break;
      for (Axes* list : lists)
        for (int64_t& axis : *list) axis = from[static_cast<size_t>(axis)];
      factor = graph[factor].operands[0];
    }
    return factor;
  }

  // The sum, if the windows are those of factor `side` and the taps are axes of the other one.
  std::optional<NodeId> over_windows_of(size_t side) const {
    const Axes own = axes_of_factor(side), others = axes_of_factor(1 - side);
    const auto at = [](const Axes& list, int64_t i) { return list[static_cast<size_t>(i)]; };
    const DotOp dot = *graph[product].as<DotOp>();
    Axes batch = braze::batch(dot, side), contract = braze::contract(dot, side);
    // Of an axis without places, windows would show zeros that nothing multiplied before.
    for (const int64_t axis : axes.back())
      if (at(own, axis) < 0 || contains(batch, at(own, axis)) ||
          graph[product].type.shape[static_cast<size_t>(axis)].range().min < 1)
        return std::nullopt;
    Expr terms(1);
    for (const int64_t axis : contract)
      terms *= graph[graph[product].operands[side]].type.shape[static_cast<size_t>(axis)];
    if (!batch.empty() && !is_wide_enough(terms.range().max)) return std::nullopt;
    for (const int64_t tap : taps.back())
      if (at(others, tap) < 0 || at(own, tap) >= 0) return std::nullopt;
    Axes windowed;
    for (const int64_t axis : axes.back()) windowed.push_back(at(own, axis));
    const NodeId other = graph[product].operands[1 - side];
    const NodeId factor =
        without_transposes(graph[product].operands[side], {&windowed, &batch, &contract});
    const Shape shape = graph[factor].type.shape;
    const WindowsOp op = *graph[windows].as<WindowsOp>();
    const Shape shown = graph[windows].type.shape;
    const auto count = static_cast<int64_t>(op.taps.size());
    // The taps stand behind the windowed axes, or before them if the last of these is the last axis
    // of the factor, so that neighbours in memory stay neighbours.
    const auto [first, last] = std::ranges::minmax(windowed);
    const int64_t behind = last + 1 == static_cast<int64_t>(shape.rank()) ? first : last + 1;
    const auto shifted = [&](int64_t axis) { return axis + (axis >= behind ? count : 0); };
    // The taps have the order of the other factor's axes, so that one run of its memory is summed.
    Axes order(static_cast<size_t>(count)), by_axis = order;
    std::iota(order.begin(), order.end(), 0);
    by_axis = order;
    std::ranges::sort(order, {}, [&](int64_t i) { return at(others, at(taps.back(), i)); });
    std::ranges::sort(by_axis, {}, [&](int64_t i) { return at(windowed, i); });
    Axes new_tap(static_cast<size_t>(count));
    std::vector<Expr> spread = shape.dims();
    for (int64_t i = 0; i < count; ++i) {
      new_tap[static_cast<size_t>(at(order, i))] = behind + i;
      spread.insert(spread.begin() + static_cast<std::ptrdiff_t>(behind + i),
                    shown[static_cast<size_t>(at(op.taps, at(order, i)))]);
    }
    Axes kept;
    for (int64_t axis = 0; axis < static_cast<int64_t>(shape.rank()); ++axis)
      kept.push_back(shifted(axis));
    std::vector<Expr> dims = spread;
    WindowsOp moved;
    for (const int64_t entry : by_axis) {
      const auto i = static_cast<size_t>(entry);
      moved.axes.push_back(shifted(windowed[i]));
      moved.taps.push_back(new_tap[i]);
      moved.strides.push_back(op.strides[i]);
      moved.dilations.push_back(op.dilations[i]);
      moved.gaps.push_back(op.gaps[i]);
      moved.low.push_back(op.low[i]);
      dims[static_cast<size_t>(moved.axes.back())] = shown[static_cast<size_t>(op.axes[i])];
    }
    const NodeId wide = build::broadcast(graph, factor, Shape(std::move(spread)), kept, where);
    const NodeId zero = build::scalar(graph, graph[factor].type.dtype, 0, where);
    const NodeId windowed_factor =
        build::windows(graph, wide, zero, std::move(moved), Shape(std::move(dims)), where);

    // Pairs of summed axes, in the order of the windows' axes.
    std::vector<std::pair<int64_t, int64_t>> pairs;
    const Axes& other_contract = braze::contract(dot, 1 - side);
    for (size_t i = 0; i < contract.size(); ++i)
      pairs.emplace_back(shifted(contract[i]), other_contract[i]);
    for (size_t i = 0; i < new_tap.size(); ++i)
      pairs.emplace_back(new_tap[i], at(others, taps.back()[i]));
    std::ranges::sort(pairs);
    DotOp both = dot;
    Axes* lists[] = {&both.contract_left, &both.contract_right};
    for (Axes* list : lists) list->clear();
    for (const auto& [mine, theirs] : pairs) {
      lists[side]->push_back(mine);
      lists[1 - side]->push_back(theirs);
    }
    for (int64_t& axis : batch) axis = shifted(axis);
    (side == 0 ? both.batch_left : both.batch_right) = batch;
    const DType dtype = step.node.type.dtype;
    const NodeId result = build::dot(graph, side == 0 ? windowed_factor : other,
                                     side == 0 ? other : windowed_factor, both, dtype, where);
    return replayed(result);
  }

  // The reshapes and transposes of the product, for a value without the taps.
  NodeId replayed(NodeId value) const {
    const WindowsOp op = *graph[windows].as<WindowsOp>();
    const Shape shown = graph[windows].type.shape;
    for (size_t i = moves.size(); i-- > 0;) {
      const Node move = graph[moves[i]];
      if (const auto* transpose = move.as<TransposeOp>()) {
        value = build::transpose(graph, value, without(transpose->permutation, taps[i + 1]), where);
        continue;
      }
      std::vector<Expr> dims = move.type.shape.dims();
      for (size_t n = 0; n < op.axes.size(); ++n)
        dims[static_cast<size_t>(axes[i][n])] = shown[static_cast<size_t>(op.axes[n])];
      value = build::reshape(graph, value, Shape(without(std::move(dims), taps[i])), where);
    }
    return value;
  }
};

}  // namespace

Graph windowed_dots(const Graph& graph, int64_t least_terms) {
  const std::vector<bool> needed = needed_nodes(graph);
  std::vector<int> uses(graph.size());
  for (size_t i = 0; i < graph.size(); ++i)
    if (needed[i])
      for (const NodeId operand : graph[NodeId(i)].operands) ++uses[operand.index];
  for (const GraphOutput& output : graph.outputs()) ++uses[output.node.index];
  const std::vector<bool> relaxed = relaxed_nodes(graph);
  return rewrite(graph, [&](const Rewriting& step) {
    WindowedDot found{step, least_terms};
    if (!found.find(uses, relaxed) || !found.pays()) return step.keep();
    for (const size_t side : {0, 1})
      if (const auto sum = found.over_windows_of(side)) return *sum;
    return step.keep();
  });
}

}  // namespace braze
