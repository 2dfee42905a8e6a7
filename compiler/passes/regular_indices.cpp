#include "compiler/passes/regular_indices.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/passes/unscatter.h"
#include "ir/graph/build.h"
#include "ir/graph/infer.h"
#include "ir/graph/rewrite.h"
#include "ir/graph/splat.h"

namespace braze {

namespace {

using Axes = std::vector<int64_t>;

// base + the sum over all axes of steps[axis] * position: an integer for each element of a tensor.
struct Regular {
  int64_t base = 0;
  Axes steps = {};
};

// Larger numbers than indices have. Sums and products of two of them fit in 64 bits.
constexpr int64_t kMost = int64_t{1} << 31;

// The static extents of a shape; nullopt if one depends on a size.
std::optional<Axes> extents_of(const Shape& shape) {
  Axes out;
  for (const Expr& extent : shape) {
    const auto known = extent.as_constant();
    if (!known) return std::nullopt;
    out.push_back(*known);
  }
  return out;
}

// The least and the greatest of the numbers.
std::pair<int64_t, int64_t> range_of(const Regular& numbers, const Axes& extents) {
  int64_t least = numbers.base, greatest = numbers.base;
  for (size_t a = 0; a < extents.size(); ++a) {
    const int64_t change = numbers.steps[a] * (extents[a] - 1);
    (change < 0 ? least : greatest) += change;
  }
  return {least, greatest};
}

// Recognises integers that are regular in the positions of their elements.
class Recognition {
 public:
  explicit Recognition(const Graph& graph) : graph_(graph), found_(graph.size()) {}

  const std::optional<Regular>& of(NodeId id) {
    std::optional<std::optional<Regular>>& found = found_[id.index];
    if (!found) {
      std::optional<Regular> made = make(id);
      found = made && is_safe(*made, id) ? std::move(made) : std::nullopt;
    }
    return *found;
  }

 private:
  // Whether no number overflows the dtype.
  bool is_safe(const Regular& numbers, NodeId id) const {
    const auto extents = extents_of(graph_[id].type.shape);
    if (!extents || std::ranges::find(*extents, 0) != extents->end()) return false;
    for (size_t a = 0; a < extents->size(); ++a)
      if (std::abs(numbers.steps[a]) >= kMost || (*extents)[a] >= kMost ||
          std::abs(numbers.steps[a]) * ((*extents)[a] - 1) >= kMost)
        return false;
    const auto [least, greatest] = range_of(numbers, *extents);
    return least > -kMost && greatest < kMost;
  }

  std::optional<Regular> make(NodeId id) {
    const Node& node = graph_[id];
    const size_t rank = node.type.shape.rank();
    if (node.type.dtype != DType::I32 && node.type.dtype != DType::I64) return std::nullopt;
    if (const auto value = splat(graph_, id)) {
      if (std::abs(*value) >= static_cast<double>(kMost)) return std::nullopt;
      return Regular{static_cast<int64_t>(*value), Axes(rank, 0)};
    }
    Regular out{0, Axes(rank, 0)};
    if (const auto* iota = node.as<IotaOp>()) {
      out.steps[static_cast<size_t>(iota->axis)] = 1;
      return out;
    }
    if (const auto* map = node.as<MapOp>()) return mapped(node, map->op);
    if (node.operands.size() != 1) return std::nullopt;
    const std::optional<Regular>& x = of(node.operands[0]);
    if (!x) return std::nullopt;
    const Shape& from = graph_[node.operands[0]].type.shape;
    if (const auto* broadcast = node.as<BroadcastOp>()) {
      out.base = x->base;
      for (size_t i = 0; i < broadcast->axes.size(); ++i)
        if (!from[i].is_constant(1))
          out.steps[static_cast<size_t>(broadcast->axes[i])] = x->steps[i];
      return out;
    }
    if (node.as<ReshapeOp>()) return reshaped(*x, from, node.type.shape);
    if (const auto* transpose = node.as<TransposeOp>()) {
      out.base = x->base;
      for (size_t i = 0; i < rank; ++i)
        out.steps[i] = x->steps[static_cast<size_t>(transpose->permutation[i])];
      return out;
    }
    return std::nullopt;
  }

  std::optional<Regular> mapped(const Node& node, ElementwiseOp op) {
    std::vector<Regular> operands;
    for (const NodeId operand : node.operands) {
      const std::optional<Regular>& found = of(operand);
      if (!found) return std::nullopt;
      operands.push_back(*found);
      // A scalar is broadcast.
      operands.back().steps.resize(node.type.shape.rank(), 0);
    }
    const auto is_fixed = [](const Regular& x) {
      return std::ranges::all_of(x.steps, [](int64_t step) { return step == 0; });
    };
    const auto scaled = [](Regular x, int64_t by) {
      x.base *= by;
      for (int64_t& step : x.steps) step *= by;
      return x;
    };
    const auto sum = [](Regular x, const Regular& y) {
      x.base += y.base;
      for (size_t a = 0; a < x.steps.size(); ++a) x.steps[a] += y.steps[a];
      return x;
    };
    if (op == ElementwiseOp::convert) return operands[0];
    if (op == ElementwiseOp::neg) return scaled(operands[0], -1);
    if (op == ElementwiseOp::add) return sum(operands[0], operands[1]);
    if (op == ElementwiseOp::sub) return sum(operands[0], scaled(operands[1], -1));
    if (op == ElementwiseOp::mul && is_fixed(operands[0]))
      return scaled(operands[1], operands[0].base);
    if (op == ElementwiseOp::mul && is_fixed(operands[1]))
      return scaled(operands[0], operands[1].base);
    return std::nullopt;
  }

  // Reshapes that add or remove axes of extent 1.
  static std::optional<Regular> reshaped(const Regular& x, const Shape& from, const Shape& to) {
    Regular out{x.base, Axes(to.rank(), 0)};
    size_t a = 0;
    for (size_t b = 0; b < to.rank(); ++b) {
      if (to[b].is_constant(1)) continue;
      while (a < from.rank() && from[a].is_constant(1)) ++a;
      if (a == from.rank() || from[a] != to[b]) return std::nullopt;
      out.steps[b] = x.steps[a++];
    }
    return out;
  }

  const Graph& graph_;
  std::vector<std::optional<std::optional<Regular>>> found_;
};

// Whether a tensor may have the shape, as infer.h says.
bool is_possible(const Shape& shape) {
  int64_t elements = 1;
  for (const Expr& extent : shape)
    if (__builtin_mul_overflow(elements, std::max<int64_t>(extent.range().max, 1), &elements))
      return false;
  return shape.rank() <= kMaxRank && elements <= kMaxElements;
}

double product(const Axes& factors) {
  return std::accumulate(factors.begin(), factors.end(), 1.0, std::multiplies<double>());
}

// The most terms of sums for each element of x and of the updates, which a scatter looks at about
// once. A CPU takes as long for a term of windows as for an update of a scatter, or longer. A GPU
// lets the updates of a block wait for each other: on an H200, sums with 20 and with 32 times as
// many terms took a 90th and two fifths of the scatter's time, and one with 99 times as many took
// more.
constexpr double kMostTermsOnCpu = 1, kMostTermsOnGpu = 32;

// A gather or a scatter along `axis`, whose indices are base + steps[0] * n + steps[1] * k for n
// and k below the extents. A single axis of indices is k, with n below 1.
struct Movement {
  const Rewriting& step;
  size_t axis;
  int64_t extent, base;  // of x along the axis, and the first place
  int64_t extents[2], steps[2];
  bool is_exchanged = false;  // k is the axis of the indices that comes first
  Graph& graph = step.result;
  SourceLocation where = step.node.location;
  Shape x = graph[step.operands[0]].type.shape;

  const Shape& indices() const { return graph[step.operands[1]].type.shape; }
  Shape with_axis(const Shape& shape, const Axes& extents_there, size_t replaced) const {
    std::vector<Expr> dims(shape.begin(), shape.begin() + static_cast<ptrdiff_t>(axis));
    dims.insert(dims.end(), extents_there.begin(), extents_there.end());
    dims.insert(dims.end(), shape.begin() + static_cast<ptrdiff_t>(axis + replaced), shape.end());
    return Shape(std::move(dims));
  }
  WindowsOp windows(int64_t stride, int64_t dilation, int64_t gap, int64_t low) const {
    const auto at = static_cast<int64_t>(axis);
    return {.axes = {at},
            .taps = {at + 1},
            .strides = {stride},
            .dilations = {dilation},
            .gaps = {gap},
            .low = {low}};
  }
  NodeId padded(NodeId id, int64_t low, int64_t high, int64_t interior, NodeId fill,
                size_t at) const {
    const size_t rank = graph[id].type.shape.rank();
    std::vector<Expr> before(rank), after(rank);
    Axes between(rank, 0);
    before[at] = low, after[at] = high, between[at] = interior;
    return build::pad(graph, id, fill, std::move(before), std::move(after), std::move(between),
                      where);
  }

  // x beside itself, for windows of it.
  Shape pairs() const { return with_axis(x, {extent, extents[1]}, 1); }
  bool can_gather() const { return extents[0] == 1 || is_possible(pairs()); }

  NodeId gathered() const {
    const NodeId from = step.operands[0];
    if (extents[0] == 1) {
      std::vector<Expr> starts(x.rank()), limits = x.dims();
      Axes strides(x.rank(), 1);
      starts[axis] = base;
      limits[axis] = base + steps[1] * (extents[1] - 1) + 1;
      strides[axis] = steps[1];
      const NodeId out = build::slice(graph, from, std::move(starts), std::move(limits),
                                      std::move(strides), where);
      return build::reshape(graph, out, step.node.type.shape, where);
    }
    Axes kept;
    for (size_t a = 0; a <= x.rank(); ++a)
      if (a != axis + 1) kept.push_back(static_cast<int64_t>(a));
    const DType dtype = graph[from].type.dtype;
    const NodeId spread = build::broadcast(graph, from, pairs(), std::move(kept), where);
    // All places are inside, so that nothing sees the fill.
    const NodeId shown = build::windows(graph, spread, build::scalar(graph, dtype, 0, where),
                                        windows(steps[0], steps[1], 1, -base),
                                        with_axis(x, {extents[0], extents[1]}, 1), where);
    return build::reshape(graph, shown, step.node.type.shape, where);
  }

  // If n takes steps over whole numbers of k, the updates are cut into pieces as long as such a
  // step, so that piece m of n begins where piece 0 of n + m does: every element is that of a
  // piece, and combines the pieces that begin at one place. Otherwise an element is one of windows
  // with gaps.
  bool is_cut() const { return steps[0] % steps[1] == 0; }
  int64_t size() const { return steps[0] / steps[1]; }
  int64_t pieces() const { return (extents[1] + size() - 1) / size(); }
  int64_t begins() const { return extents[0] + pieces() - 1; }
  // The terms of a line along the axis. Those along the second axis are combined.
  Axes terms() const {
    return is_cut() ? Axes{begins(), pieces(), size()} : Axes{extent, extents[1]};
  }
  Movement exchanged() const {
    Movement out = *this;
    std::swap(out.extents[0], out.extents[1]);
    std::swap(out.steps[0], out.steps[1]);
    out.is_exchanged = !is_exchanged;
    return out;
  }

  // A scatter that takes over the memory of x does not have to move what no update reaches.
  bool can_scatter(bool in_place, const Target& target) const {
    const bool is_gpu = target.kind == TargetKind::Gpu;
    const double places = static_cast<double>(extent), updates = product({extents[0], extents[1]});
    if (in_place && is_gpu && !moving_pays(step.node, indices(), target)) return false;
    if (in_place && !is_gpu && places > updates) return false;
    const double most = is_gpu ? kMostTermsOnGpu : kMostTermsOnCpu;
    return is_possible(with_axis(x, terms(), 1)) && product(terms()) <= most * (places + updates);
  }

  NodeId scattered(Monoid monoid) const {
    const DType dtype = graph[step.operands[0]].type.dtype;
    const DType wide = accumulation_type(monoid, dtype);
    const NodeId fill = build::scalar_bits(graph, wide, info(monoid).padding(wide), where);
    const NodeId before = build::convert(graph, step.operands[0], wide, where);
    const NodeId updates = line_of_updates(wide);
    const NodeId terms =
        is_cut() ? sum_of_pieces(updates, fill, monoid) : sum_of_windows(updates, fill, monoid);
    NodeId out = build::map(graph, info(monoid).combine, {before, terms}, where);
    if (!is_cut() && monoid == Monoid::Sum && is_floating(wide) && may_have_negative_zeros()) {
      // Windows without an update sum to a zero of any sign, and -0 + 0 is 0.
      const NodeId zero = build::scalar(graph, wide, 0, where);
      const NodeId nothing = build::map(graph, ElementwiseOp::eq, {terms, zero}, where);
      out = build::map(graph, ElementwiseOp::select, {nothing, before, out}, where);
    }
    return build::convert(graph, out, dtype, where);
  }

  bool may_have_negative_zeros() const {
    const auto value = splat(step.source, step.node.operands[0]);
    return !value || std::signbit(*value);
  }

  // The updates by n and k.
  NodeId line_of_updates(DType wide) const {
    const NodeId from = step.operands[2];
    Axes pair{extents[0], extents[1]};
    if (is_exchanged) std::swap(pair[0], pair[1]);
    const NodeId out =
        build::reshape(graph, build::convert(graph, from, wide, where),
                       with_axis(graph[from].type.shape, pair, indices().rank()), where);
    if (!is_exchanged) return out;
    Axes permutation(graph[out].type.shape.rank());
    std::iota(permutation.begin(), permutation.end(), 0);
    std::swap(permutation[axis], permutation[axis + 1]);
    return build::transpose(graph, out, std::move(permutation), where);
  }

  NodeId combined(NodeId terms, Monoid monoid) const {
    return build::reduce(graph, monoid, terms, {static_cast<int64_t>(axis) + 1}, where);
  }

  NodeId sum_of_windows(NodeId updates, NodeId fill, Monoid monoid) const {
    const NodeId shown = build::windows(graph, updates, fill, windows(1, -steps[1], steps[0], base),
                                        with_axis(graph[updates].type.shape, terms(), 2), where);
    return combined(shown, monoid);
  }

  NodeId sum_of_pieces(NodeId updates, NodeId fill, Monoid monoid) const {
    const Shape shape = graph[updates].type.shape;
    NodeId sums = padded(updates, 0, pieces() * size() - extents[1], 0, fill, axis + 1);
    if (pieces() > 1) {
      const NodeId cut =
          build::reshape(graph, sums, with_axis(shape, {extents[0], pieces(), size()}, 2), where);
      const NodeId shown = build::windows(graph, cut, fill, windows(1, -1, 1, 0),
                                          with_axis(shape, terms(), 2), where);
      sums = combined(shown, monoid);
    }
    const NodeId line =
        build::reshape(graph, sums, with_axis(shape, {begins() * size()}, 2), where);
    // Every place up to the last update has one, unless there is but one piece.
    const int64_t count = size() * (extents[0] - 1) + extents[1];
    std::vector<Expr> limits = graph[line].type.shape.dims();
    limits[axis] = count;
    const size_t rank = limits.size();
    const NodeId fitted =
        build::slice(graph, line, std::vector<Expr>(rank), std::move(limits), Axes(rank, 1), where);
    const int64_t last = base + steps[1] * (count - 1);
    return padded(fitted, base, extent - 1 - last, steps[1] - 1, fill, axis);
  }
};

std::optional<Movement> movement_of(const Rewriting& step, int64_t axis, Recognition& recognition) {
  const NodeId indices = step.node.operands[1];
  const auto& found = recognition.of(indices);
  const auto extents = extents_of(step.source[indices].type.shape);
  const auto extent =
      step.source[step.node.operands[0]].type.shape[static_cast<size_t>(axis)].as_constant();
  if (!found || !extents || !extent) return std::nullopt;
  const auto [least, greatest] = range_of(*found, *extents);
  if (least < 0 || greatest >= *extent) return std::nullopt;
  Movement out{step, static_cast<size_t>(axis), *extent, found->base, {1, 1}, {1, 1}};
  // Axes that have one position count for nothing.
  size_t count = 0;
  for (size_t a = extents->size(); a-- > 0;) {
    if ((*extents)[a] == 1) continue;
    if (count == 2 || found->steps[a] < 1) return std::nullopt;
    out.extents[1 - count] = (*extents)[a];
    out.steps[1 - count] = found->steps[a];
    ++count;
  }
  if (out.extents[0] == 1) out.steps[0] = out.steps[1] * out.extents[1];
  return out;
}

}  // namespace

Graph regular_gathers(const Graph& graph) {
  Recognition recognition(graph);
  return rewrite(graph, [&](const Rewriting& step) {
    const auto* gather = step.node.as<GatherOp>();
    if (!gather) return step.keep();
    const auto movement = movement_of(step, gather->axis, recognition);
    return movement && movement->can_gather() ? movement->gathered() : step.keep();
  });
}

Graph regular_scatters(const Graph& graph, const Target& target) {
  Recognition recognition(graph);
  const std::vector<bool> in_place = scatters_in_place(graph);
  return rewrite(graph, [&](const Rewriting& step) {
    const auto* scatter = step.node.as<ScatterOp>();
    if (!scatter || !scatter->monoid) return step.keep();
    const auto movement = movement_of(step, scatter->axis, recognition);
    if (!movement) return step.keep();
    const Movement other = movement->exchanged();
    const Movement& least = product(other.terms()) < product(movement->terms()) ? other : *movement;
    return least.can_scatter(in_place[step.id.index], target) ? least.scattered(*scatter->monoid)
                                                              : step.keep();
  });
}

}  // namespace braze
