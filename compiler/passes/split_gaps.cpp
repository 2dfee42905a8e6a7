#include "compiler/passes/split_gaps.h"

#include <algorithm>
#include <numeric>

#include "compiler/passes/moved_axes.h"
#include "ir/graph/build.h"
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

using Axes = std::vector<int64_t>;

bool contains(const Axes& axes, int64_t axis) { return std::ranges::count(axes, axis) > 0; }

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

// A product, one factor of which is windows with gaps.
struct GappedDot {
  const Rewriting& step;
  const DotOp& dot;
  size_t side;  // the factor with the windows
  NodeId windows;
  Graph& graph = step.result;
  SourceLocation where = step.node.location;
  WindowsOp op = *graph[windows].as<WindowsOp>();
  NodeId x = graph[windows].operands[0], fill = graph[windows].operands[1],
         other = step.operands[1 - side];
  Shape shape = graph[windows].type.shape;
  const Axes& batch = side == 0 ? dot.batch_left : dot.batch_right;
  const Axes& contract = side == 0 ? dot.contract_left : dot.contract_right;
  const Axes& other_contract = side == 0 ? dot.contract_right : dot.contract_left;
  struct Split {
    size_t entry;  // of `op`
    WindowResidues residues;
    size_t place;  // of the axis in the result of the product
    int64_t pair;  // the other factor's axis of the taps
  };
  std::vector<Split> splits = {};

  size_t place_in_result(int64_t axis) const {
    int64_t place = std::ssize(batch);
    if (side == 1)
      place += static_cast<int64_t>(graph[other].type.shape.rank()) - std::ssize(batch) -
               std::ssize(contract);
    for (int64_t before = 0; before < axis; ++before)
      place += !contains(batch, before) && !contains(contract, before);
    return static_cast<size_t>(place);
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
      products *= residues->taps.size();
      double shown = 0;
      for (const auto& r : residues->taps) shown += static_cast<double>(r.count);
      work *= shown / (static_cast<double>(residues->taps.size()) * std::max(1.0, most(taps)));
      splits.push_back({i, std::move(*residues), place_in_result(op.axes[i]),
                        other_contract[static_cast<size_t>(pair)]});
    }
    return !splits.empty() && products <= kMostSplitGaps && work >= least;
  }

  // The product for windows with remainder `at[i]` along the axis of split i.
  NodeId product(const std::vector<size_t>& at) const {
    WindowsOp dense = op;
    std::vector<Expr> dims = shape.dims(), result = step.node.type.shape.dims();
    NodeId shown = x, factor = other;
    bool empty = false;
    for (size_t i = 0; i < splits.size(); ++i) {
      const auto& [entry, residues, place, pair] = splits[i];
      const auto& taps = residues.taps[at[i]];
      const auto count = static_cast<int64_t>(residues.taps.size());
      const int64_t tap_axis = op.taps[entry];
      result[place] = dims[static_cast<size_t>(op.axes[entry])] = ceildiv(result[place], count);
      dims[static_cast<size_t>(tap_axis)] = taps.count;
      dense.strides[entry] = residues.stride;
      dense.dilations[entry] = residues.dilation;
      dense.gaps[entry] = 1;
      dense.low[entry] = taps.low;
      empty = empty || taps.count == 0;
      if (empty) continue;
      shown = every(graph, shown, tap_axis, taps.first_tap, residues.tap_step, where);
      factor = every(graph, factor, pair, taps.first_tap, residues.tap_step, where);
    }
    const DType dtype = step.node.type.dtype;
    if (empty)
      return build::broadcast_to(graph, build::scalar(graph, dtype, 0, where),
                                 Shape(std::move(result)), where);
    const NodeId windowed =
        build::windows(graph, shown, fill, std::move(dense), Shape(std::move(dims)), where);
    return build::dot(graph, side == 0 ? windowed : factor, side == 0 ? factor : windowed, dot,
                      dtype, where);
  }

  // The results for all remainders of the splits from `at.size()` on, interleaved.
  NodeId interleaved(std::vector<size_t> at) const {
    if (at.size() == splits.size()) return product(at);
    const Split& split = splits[at.size()];
    const size_t count = split.residues.taps.size();
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
    std::vector<Expr> starts(dims.size());
    Axes strides(dims.size(), 1);
    const Expr extent = step.node.type.shape[split.place];
    if (dims[split.place] == extent) return line;
    dims[split.place] = extent;
    return build::slice(graph, line, std::move(starts), std::move(dims), std::move(strides), where);
  }
};

}  // namespace

Graph split_gaps(const Graph& graph, double least) {
  return rewrite(graph, [&](const Rewriting& step) {
    const auto* dot = step.node.as<DotOp>();
    if (!dot) return step.keep();
    for (const size_t side : {0, 1}) {
      const auto windows = as_windows(step.result, step.operands[side]);
      if (!windows) continue;
      GappedDot gapped{step, *dot, side, *windows};
      if (gapped.find_splits(least)) return gapped.interleaved({});
    }
    return step.keep();
  });
}

}  // namespace braze
