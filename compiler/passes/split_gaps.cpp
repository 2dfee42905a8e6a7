#include "compiler/passes/split_gaps.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "compiler/passes/moved_axes.h"
#include "ir/graph/axis_lists.h"
#include "ir/graph/build.h"
#include "ir/graph/reference.h"
#include "ir/graph/rewrite.h"
#include "ir/graph/splat.h"

namespace braze {

std::optional<WindowResidues> residues_of(const WindowsOp& op, size_t i, const Expr& taps) {
  const auto low = op.low[i].as_constant(), count = taps.as_constant();
  if (!low || !count) return std::nullopt;
  const int64_t stride = op.strides[i], dilation = op.dilations[i], gap = op.gaps[i];
  const int64_t period = gap / std::gcd(gap, stride);
  WindowResidues out;
  out.tap_step = gap / std::gcd(gap, dilation);
  out.stride = period * stride / gap;
  out.dilation = out.tap_step * dilation / gap;
  for (int64_t place = 0; place < period; ++place) {
    WindowResidues::Taps shown;
    for (int64_t tap = 0; tap < std::min(out.tap_step, *count); ++tap) {
      const int64_t at = place * stride + tap * dilation - *low;
      if (at % gap != 0) continue;
      shown = {tap, (*count - tap + out.tap_step - 1) / out.tap_step, -(at / gap)};
      break;
    }
    out.taps.push_back(shown);
  }
  return out;
}

namespace {

double most(const Expr& extent) { return static_cast<double>(extent.range().max); }

// `x` with every `step`-th element from `first` on along an axis.
NodeId every(Graph& graph, NodeId x, int64_t axis, int64_t first, int64_t step,
             const SourceLocation& where) {
  const Shape shape = graph[x].type.shape;
  std::vector<Expr> starts(shape.rank());
  Axes strides(shape.rank(), 1);
  starts[static_cast<size_t>(axis)] = first;
  strides[static_cast<size_t>(axis)] = step;
  return build::slice(graph, x, std::move(starts), shape.dims(), std::move(strides), where);
}

// An axis of a factor of a product, by the number of the factor.
using FactorAxis = std::pair<size_t, int64_t>;

// The axes of the result of a product.
std::vector<FactorAxis> result_axes(const DotOp& dot, size_t left_rank, size_t right_rank) {
  std::vector<FactorAxis> out;
  for (const int64_t axis : dot.batch_left) out.emplace_back(0, axis);
  for (const size_t side : {size_t{0}, size_t{1}}) {
    const size_t rank = side == 0 ? left_rank : right_rank;
    for (const int64_t axis : other_axes(rank, batch(dot, side), contract(dot, side)))
      out.emplace_back(side, axis);
  }
  return out;
}

// A product, one factor of which is windows.
struct WindowsDot {
  const Rewriting& step;
  const DotOp& dot;
  size_t side;  // the factor with the windows
  NodeId windows;
  Graph& graph = step.result;
  SourceLocation where = step.node.location;
  WindowsOp op = *graph[windows].as<WindowsOp>();
  NodeId x = graph[windows].operands[0], fill = graph[windows].operands[1],
         other = step.operands[1 - side];
  Shape shape = graph[windows].type.shape;  // of the windows
};

// A product, one factor of which is windows with gaps.
struct GappedDot : WindowsDot {
  const Axes& batch = braze::batch(dot, side);
  const Axes& contract = braze::contract(dot, side);
  const Axes& other_contract = braze::contract(dot, 1 - side);
  struct Split {
    size_t entry;  // of `op`
    WindowResidues residues;
    size_t place;  // of the axis in the result of the product
    int64_t pair;  // the other factor's axis of the taps
    // Whether windows of all remainders show the same elements. Their taps are those of one product
    // then, which has the remainder as an axis.
    bool is_shared;
  };
  std::vector<Split> splits = {};

  size_t place_in_result(int64_t axis) const {
    const auto axes = result_axes(dot, rank(0), rank(1));
    return static_cast<size_t>(std::ranges::find(axes, FactorAxis(side, axis)) - axes.begin());
  }
  size_t rank(size_t of) const {
    return of == side ? shape.rank() : graph[other].type.shape.rank();
  }

  // Whether the tap r of each group of `tap_step` is the first one of remainder r, and the windows
  // of all remainders begin at the same element, which is the same for all taps.
  bool shares(const WindowResidues& residues, int64_t tap, const Expr& taps) const {
    const auto count = std::ssize(residues.taps);
    if (count == 1 || count != residues.tap_step || !taps.is_multiple_of(count)) return false;
    for (int64_t r = 0; r < count; ++r) {
      const auto& shown = residues.taps[static_cast<size_t>(r)];
      if (shown.count == 0 || shown.first_tap != r || shown.low != residues.taps[0].low)
        return false;
    }
    return without_broadcast(graph, x, {tap}).has_value();
  }

  // Whether there are gaps, and the products for all remainders are worth their launches.
  bool find_splits(double least) {
    if (splat(graph, fill) != 0.0) return false;
    size_t products = 1;
    double work = most(step.node.type.shape.numel());
    for (const int64_t axis : contract) work *= most(shape[static_cast<size_t>(axis)]);
    for (size_t i = 0; i < op.axes.size(); ++i) {
      if (op.gaps[i] == 1) continue;
      const Expr taps = shape[static_cast<size_t>(op.taps[i])];
      const auto pair = std::ranges::find(contract, op.taps[i]) - contract.begin();
      auto residues = residues_of(op, i, taps);
      if (!residues || pair == std::ssize(contract) || contains(contract, op.axes[i]) ||
          contains(batch, op.axes[i]))
        return false;
      const bool is_shared = shares(*residues, op.taps[i], taps);
      if (!is_shared) products *= residues->taps.size();
      double shown = 0;
      for (const auto& r : residues->taps) shown += static_cast<double>(r.count);
      work *= shown / (static_cast<double>(residues->taps.size()) * std::max(1.0, most(taps)));
      splits.push_back({i, std::move(*residues), place_in_result(op.axes[i]),
                        other_contract[static_cast<size_t>(pair)], is_shared});
    }
    if (splits.empty()) return false;
    return products == 1 || (products <= kMostSplitGaps && work >= least);
  }

  // The product for windows with remainder `at[i]` along the axis of split i. It has all remainders
  // of shared splits.
  NodeId product(const std::vector<size_t>& at) const {
    WindowsOp dense = op;
    std::vector<Expr> dims = shape.dims(), result = step.node.type.shape.dims();
    NodeId shown = x, factor = other;
    bool empty = false;
    for (size_t i = 0; i < splits.size(); ++i) {
      const auto& [entry, residues, place, pair, is_shared] = splits[i];
      const auto& taps = residues.taps[at[i]];
      const auto count = static_cast<int64_t>(residues.taps.size());
      const int64_t tap_axis = op.taps[entry];
      const Expr places = ceildiv(result[place], count);
      dims[static_cast<size_t>(op.axes[entry])] = places;
      if (!is_shared) result[place] = places;
      dims[static_cast<size_t>(tap_axis)] = taps.count;
      dense.strides[entry] = residues.stride;
      dense.dilations[entry] = residues.dilation;
      dense.gaps[entry] = 1;
      dense.low[entry] = taps.low;
      empty = empty || taps.count == 0;
      if (empty) continue;
      shown = every(graph, shown, tap_axis, taps.first_tap, residues.tap_step, where);
      if (!is_shared) factor = every(graph, factor, pair, taps.first_tap, residues.tap_step, where);
    }
    const DType dtype = step.node.type.dtype;
    if (empty)
      return build::broadcast_to(graph, build::scalar(graph, dtype, 0, where),
                                 Shape(std::move(result)), where);
    const NodeId windowed =
        build::windows(graph, shown, fill, std::move(dense), Shape(std::move(dims)), where);
    return with_remainders(windowed, factor, Shape(std::move(result)));
  }

  // The product in which the taps of shared splits are remainders and taps of one remainder, with
  // the remainders behind their places.
  NodeId with_remainders(NodeId windowed, NodeId factor, const Shape& result) const {
    const auto remainders_before = [&](int64_t axis) {
      return std::ranges::count_if(
          splits, [&](const Split& split) { return split.is_shared && split.pair < axis; });
    };
    const Shape from = graph[factor].type.shape;
    std::vector<Expr> dims;
    std::vector<int64_t> numbers;  // of the axes of `factor`; -1: a remainder
    for (int64_t axis = 0; axis < static_cast<int64_t>(from.rank()); ++axis) {
      const Expr extent = from[static_cast<size_t>(axis)];
      const auto split = std::ranges::find_if(
          splits, [&](const Split& s) { return s.is_shared && s.pair == axis; });
      numbers.push_back(axis);
      dims.push_back(extent);
      if (split == splits.end()) continue;
      dims.back() = floordiv(extent, split->residues.tap_step);
      dims.emplace_back(split->residues.tap_step);
      numbers.push_back(-1 - axis);
    }
    const bool is_same = dims.size() == from.rank();
    if (!is_same) factor = build::reshape(graph, factor, Shape(std::move(dims)), where);
    DotOp now = dot;
    for (Axes* list : {side == 0 ? &now.batch_right : &now.batch_left,
                       side == 0 ? &now.contract_right : &now.contract_left})
      for (int64_t& axis : *list) axis += remainders_before(axis);
    const NodeId left = side == 0 ? windowed : factor, right = side == 0 ? factor : windowed;
    NodeId out = build::dot(graph, left, right, now, step.node.type.dtype, where);
    if (is_same) return out;
    std::vector<FactorAxis> axes =
        result_axes(now, graph[left].type.shape.rank(), graph[right].type.shape.rank());
    for (auto& [of, axis] : axes)
      if (of != side) axis = numbers[static_cast<size_t>(axis)];
    // The remainder of a split is the axis -1 - pair of the other factor.
    Axes order;
    const auto take = [&](const FactorAxis& axis) {
      order.push_back(std::ranges::find(axes, axis) - axes.begin());
    };
    for (const FactorAxis& axis : result_axes(dot, rank(0), rank(1))) {
      take(axis);
      for (const Split& split : splits)
        if (split.is_shared && axis == FactorAxis(side, op.axes[split.entry]))
          take({1 - side, -1 - split.pair});
    }
    if (!std::ranges::is_sorted(order)) out = build::transpose(graph, out, order, where);
    dims = result.dims();
    for (const Split& split : splits)
      if (split.is_shared)
        dims[split.place] =
            ceildiv(dims[split.place], split.residues.tap_step) * split.residues.tap_step;
    out = build::reshape(graph, out, Shape(std::move(dims)), where);
    return cut(out, result);
  }

  // The first elements along all axes.
  NodeId cut(NodeId value, const Shape& extents) const {
    const Shape from = graph[value].type.shape;
    if (from == extents) return value;
    return build::slice(graph, value, std::vector<Expr>(from.rank()), extents.dims(),
                        Axes(from.rank(), 1), where);
  }

  // The results for all remainders of the splits from `at.size()` on, interleaved.
  NodeId interleaved(std::vector<size_t> at) const {
    if (at.size() == splits.size()) return product(at);
    const Split& split = splits[at.size()];
    const size_t count = split.is_shared ? 1 : split.residues.taps.size();
    const auto axis = static_cast<std::ptrdiff_t>(split.place);
    std::vector<NodeId> parts;
    for (size_t r = 0; r < count; ++r) {
      at.push_back(r);
      const NodeId part = interleaved(at);
      at.pop_back();
      if (count == 1) return part;
      std::vector<Expr> dims = graph[part].type.shape.dims();
      dims.insert(dims.begin() + axis + 1, 1);
      parts.push_back(build::reshape(graph, part, Shape(std::move(dims)), where));
    }
    const NodeId all = build::concat(graph, parts, axis + 1, where);
    std::vector<Expr> dims = graph[all].type.shape.dims();
    dims[split.place] *= dims[split.place + 1];
    dims.erase(dims.begin() + axis + 1);
    const NodeId line = build::reshape(graph, all, Shape(dims), where);
    dims[split.place] = step.node.type.shape[split.place];
    return cut(line, Shape(std::move(dims)));
  }
};

// A product that sums over places of windows with gaps. The windows pair places with elements of x
// one to one, so it is the sum over the elements of x of their products with windows of the other
// factor, in which stride and gap are exchanged, and the signs of dilation and low are changed.
struct SummedGaps : WindowsDot {
  Shape elements = graph[x].type.shape;
  struct Entry {
    size_t number;  // in `op`
    int64_t tap;    // axis of the windows
    int64_t place;  // axis of the other factor
  };
  std::vector<Entry> moved = {};  // by tap
  Axes taps = {};                 // of `moved`

  const Axes& batch(size_t of) const { return braze::batch(dot, of); }
  const Axes& contract(size_t of) const { return braze::contract(dot, of); }

  // The elements of x, if some windows have more places than x has elements, and if x is the same
  // for all taps of these.
  std::optional<NodeId> find() {
    if (splat(graph, fill) != 0.0) return std::nullopt;
    for (size_t i = 0; i < op.axes.size(); ++i) {
      const int64_t axis = op.axes[i], tap = op.taps[i];
      const auto pair = std::ranges::find(contract(side), axis) - contract(side).begin();
      if (op.gaps[i] == 1 || pair == std::ssize(contract(side)) ||
          most(elements[static_cast<size_t>(axis)]) >= most(shape[static_cast<size_t>(axis)]) ||
          contains(contract(side), tap) || contains(batch(side), tap) ||
          std::ranges::count(op.taps, tap) > 1)
        continue;
      moved.push_back({i, tap, contract(1 - side)[static_cast<size_t>(pair)]});
    }
    if (moved.empty()) return std::nullopt;
    std::ranges::sort(moved, {}, &Entry::tap);
    for (const Entry& entry : moved) taps.push_back(entry.tap);
    return without_broadcast(graph, x, taps);
  }

  bool is_moved(size_t number) const {
    return std::ranges::find(moved, number, &Entry::number) != moved.end();
  }

  // The other windows, of x without the taps.
  NodeId windows_of(NodeId source) const {
    WindowsOp rest;
    std::vector<Expr> dims = shape.dims();
    for (size_t i = 0; i < op.axes.size(); ++i) {
      const auto axis = static_cast<size_t>(op.axes[i]);
      if (is_moved(i)) {
        dims[axis] = elements[axis];
        continue;
      }
      rest.axes.push_back(op.axes[i]);
      rest.taps.push_back(op.taps[i]);
      rest.strides.push_back(op.strides[i]);
      rest.dilations.push_back(op.dilations[i]);
      rest.gaps.push_back(op.gaps[i]);
      rest.low.push_back(op.low[i]);
    }
    if (rest.axes.empty()) return source;
    rest.axes = without(rest.axes, taps);
    rest.taps = without(rest.taps, taps);
    return build::windows(graph, source, fill, std::move(rest),
                          Shape(without(std::move(dims), taps)), where);
  }

  NodeId product(NodeId source) const {
    const Shape theirs = graph[other].type.shape;
    const auto count = std::ssize(moved), rank = static_cast<int64_t>(theirs.rank());
    // The taps stand behind the places, or before them if the last of these is the last axis, so
    // that neighbours in memory stay neighbours.
    const auto [first, last] = std::ranges::minmax(moved, {}, &Entry::place);
    const int64_t behind = last.place + 1 == rank ? first.place : last.place + 1;
    const auto shifted = [&](Axes axes) {
      for (int64_t& axis : axes) axis += axis >= behind ? count : 0;
      return axes;
    };
    std::vector<Expr> spread = theirs.dims();
    for (int64_t n = 0; n < count; ++n)
      spread.insert(spread.begin() + static_cast<std::ptrdiff_t>(behind + n),
                    shape[static_cast<size_t>(taps[static_cast<size_t>(n)])]);
    Axes kept = axes_from(0, theirs.rank());
    const NodeId wide = build::broadcast(graph, other, Shape(spread), shifted(kept), where);

    std::vector<size_t> order(moved.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::sort(order, {}, [&](size_t n) { return moved[n].place; });
    WindowsOp exchanged;
    for (const size_t n : order) {
      const auto& [i, tap, place] = moved[n];
      exchanged.axes.push_back(shifted({place})[0]);
      exchanged.taps.push_back(behind + static_cast<int64_t>(n));
      exchanged.strides.push_back(op.gaps[i]);
      exchanged.dilations.push_back(-op.dilations[i]);
      exchanged.gaps.push_back(op.strides[i]);
      exchanged.low.push_back(-op.low[i]);
      spread[static_cast<size_t>(exchanged.axes.back())] =
          elements[static_cast<size_t>(op.axes[i])];
    }
    const NodeId zero = build::scalar(graph, graph[other].type.dtype, 0, where);
    const NodeId shown =
        build::windows(graph, wide, zero, std::move(exchanged), Shape(std::move(spread)), where);

    DotOp now = dot;
    const bool left = side == 0;
    for (Axes* list : {left ? &now.batch_left : &now.batch_right,
                       left ? &now.contract_left : &now.contract_right})
      *list = without(*list, taps);
    for (Axes* list : {left ? &now.batch_right : &now.batch_left,
                       left ? &now.contract_right : &now.contract_left})
      *list = shifted(*list);
    const NodeId own = windows_of(source);
    const NodeId result =
        build::dot(graph, left ? own : shown, left ? shown : own, now, step.node.type.dtype, where);

    // Where the axes of the result are now. The taps count as axes of the windows.
    const auto ranks = [](size_t of, size_t own_rank, size_t other_rank) {
      return of == 0 ? std::pair(own_rank, other_rank) : std::pair(other_rank, own_rank);
    };
    const auto [left_rank, right_rank] = ranks(side, shape.rank(), theirs.rank());
    const auto before = result_axes(dot, left_rank, right_rank);
    const auto [left_now, right_now] =
        ranks(side, shape.rank() - moved.size(), theirs.rank() + moved.size());
    auto after = result_axes(now, left_now, right_now);
    Axes left_over = other_axes(shape.rank(), taps);
    for (auto& [of, axis] : after) {
      if (of == side)
        axis = left_over[static_cast<size_t>(axis)];
      else if (axis >= behind + count)
        axis -= count;
      else if (axis >= behind)
        std::tie(of, axis) = std::pair(side, taps[static_cast<size_t>(axis - behind)]);
    }
    Axes permutation;
    for (const FactorAxis& axis : before)
      permutation.push_back(std::ranges::find(after, axis) - after.begin());
    return std::ranges::is_sorted(permutation)
               ? result
               : build::transpose(graph, result, std::move(permutation), where);
  }
};

// The windows of which `node` consists of by reshapes and transposes.
std::optional<NodeId> windows_behind(const Graph& graph, NodeId node) {
  while (graph[node].as<ReshapeOp>() || graph[node].as<TransposeOp>())
    node = graph[node].operands[0];
  return graph[node].as<WindowsOp>() ? std::optional(node) : std::nullopt;
}

}  // namespace

Graph split_gaps(const Graph& graph, double least) {
  const std::vector<bool> relaxed = relaxed_nodes(graph);
  return rewrite(graph, [&](const Rewriting& step) {
    const auto* dot = step.node.as<DotOp>();
    if (!dot) return step.keep();
    for (const size_t side : {0, 1}) {
      const auto seen = windows_behind(graph, step.node.operands[side]);
      if (!seen || (is_floating(graph[*seen].type.dtype) && !relaxed[seen->index])) continue;
      const auto windows = as_windows(step.result, step.operands[side]);
      if (!windows) continue;
      GappedDot gapped{{step, *dot, side, *windows}};
      if (gapped.find_splits(least)) return gapped.interleaved({});
      SummedGaps summed{{step, *dot, side, *windows}};
      if (const auto x = summed.find()) return summed.product(*x);
    }
    return step.keep();
  });
}

}  // namespace braze
