// Sums over the taps of windows of products, and products over windows with gaps and over their
// places, of random shapes: what the passes make of them, by the interpreter and by the kernels of
// all machines, against the bounds of what was written.
#include "compiler/passes/windowed_dots.h"

#include <gtest/gtest.h>

#include <numeric>

#include "compiler/passes/split_gaps.h"
#include "ir/graph/build.h"
#include "ir/graph/interpret.h"
#include "ir/support/text.h"
#include "tests/compiler/run.h"
#include "tests/fuzz/generator.h"
#include "tests/fuzz/random.h"

namespace braze {
namespace {

using Axes = std::vector<int64_t>;

Axes range(int64_t from, int64_t count) {
  Axes out(static_cast<size_t>(count));
  std::iota(out.begin(), out.end(), from);
  return out;
}

Axes joined(std::initializer_list<Axes> lists) {
  Axes out;
  for (const Axes& list : lists) out.insert(out.end(), list.begin(), list.end());
  return out;
}

Shape shape_of(std::initializer_list<Axes> lists) {
  std::vector<Expr> dims;
  for (const int64_t extent : joined(lists)) dims.emplace_back(extent);
  return Shape(std::move(dims));
}

/// What random products of windows share.
struct RandomProduct {
  fuzz::Random random;
  int64_t count = random.within(1, 3);  // of the axes with windows
  bool grouped = random.one_in(3), swaps = random.one_in(2), last = random.one_in(2);

  explicit RandomProduct(uint64_t seed) : random(seed) {}

  int64_t extent(int64_t most) { return random.one_in(20) ? 0 : random.within(1, most); }
  Axes extents(int64_t most) {
    Axes out;
    for (int64_t i = 0; i < count; ++i) out.push_back(extent(most));
    return out;
  }
};

/// The sum over the taps of windows of the product of g[n, places.., (groups,) k] and
/// w[taps.., (groups,) c, k], with the channels last or behind n.
struct RandomSum : RandomProduct {
  using RandomProduct::RandomProduct;

  Graph graph() {
    constexpr DType kTypes[] = {DType::F32, DType::BF16, DType::F16, DType::F64};
    const DType dtype = kTypes[random.below(4)];
    const int64_t groups = grouped ? random.within(1, 3) : 1;
    const int64_t n = extent(3), k = extent(5), c = extent(5);
    const Axes places = extents(count == 3 ? 4 : 9), taps = extents(3),
               shown = extents(count == 3 ? 5 : 12);
    const Axes group = grouped ? Axes{groups} : Axes{};
    const auto b = std::ssize(group);
    Graph graph("sum");
    const NodeId g = build::input(graph, "g", {dtype, shape_of({{n}, places, group, {k}})});
    const NodeId w = build::input(graph, "w", {dtype, shape_of({taps, group, {c, k}})});
    DotOp dot;
    if (grouped) {
      dot.batch_left = {count + 1};
      dot.batch_right = {count};
    }
    dot.contract_left = {count + b + 1};
    dot.contract_right = {count + b + 1};
    if (swaps) {
      std::swap(dot.batch_left, dot.batch_right);
      std::swap(dot.contract_left, dot.contract_right);
    }
    NodeId x = build::dot(graph, swaps ? w : g, swaps ? g : w, dot);
    // Now (groups,) n, places.., taps.., c, or with taps.. and c first.
    const Axes own = range(b + (swaps ? count + 1 : 0), count + 1),
               of_w = range(b + (swaps ? 0 : count + 1), count + 1);
    const Axes n_axis = {own[0]}, place_axes(own.begin() + 1, own.end()),
               tap_axes(of_w.begin(), of_w.end() - 1), c_axis = {of_w.back()};
    const Axes channel_axes = joined({range(0, b), c_axis});
    x = build::transpose(graph, x,
                         last ? joined({n_axis, place_axes, tap_axes, channel_axes})
                              : joined({n_axis, channel_axes, tap_axes, place_axes}));
    const Axes channel = {groups * c};
    x = build::reshape(
        graph, x,
        last ? shape_of({{n}, places, taps, channel}) : shape_of({{n}, channel, taps, places}));
    WindowsOp op;
    op.axes = range(last ? 1 : 2 + count, count);
    op.taps = range(last ? 1 + count : 2, count);
    for (int64_t i = 0; i < count; ++i) {
      op.strides.push_back(random.within(1, 3));
      op.gaps.push_back(random.within(1, 3));
      op.dilations.push_back(random.within(-2, 3));
      op.low.emplace_back(random.within(-3, 4));
    }
    const NodeId zero = build::scalar(graph, dtype, 0);
    x = build::windows(
        graph, x, zero, op,
        last ? shape_of({{n}, shown, taps, channel}) : shape_of({{n}, channel, taps, shown}));
    graph.set_outputs({{build::reduce(graph, Monoid::Sum, x, op.taps), "y", {}}});
    return graph;
  }
};

/// The product of windows of x[n, elements.., (groups,) c] and d[n, places.., (groups,) f] that
/// sums over n and the places, with the channels last or behind n.
struct RandomPlaces : RandomProduct {
  using RandomProduct::RandomProduct;

  // n, then what `last` says of the channels and other axes.
  Shape image(int64_t n, const Axes& others, const Axes& channels) const {
    return last ? shape_of({{n}, others, channels}) : shape_of({{n}, channels, others});
  }

  Graph graph() {
    constexpr DType kTypes[] = {DType::F32, DType::BF16, DType::F16, DType::F64, DType::I32};
    const DType dtype = kTypes[random.below(5)];
    const int64_t n = extent(3), c = extent(5), f = extent(5);
    const Axes elements = extents(count == 3 ? 4 : 9), taps = extents(3),
               places = extents(count == 3 ? 7 : 20);
    const Axes group = grouped ? Axes{random.within(1, 3)} : Axes{};
    const auto own = std::ssize(group) + 1;  // axes of channels
    Graph graph("places");
    const NodeId x = build::input(graph, "x", {dtype, image(n, elements, joined({group, {c}}))});
    const NodeId d = build::input(graph, "d", {dtype, image(n, places, joined({group, {f}}))});
    const int64_t first = last ? 1 : 1 + own, channel = last ? 1 + 2 * count : 1;
    const Axes windowed = range(first, count), tap_axes = range(first + count, count);
    const Axes kept =
        last ? joined({range(0, 1 + count), range(channel, own)}) : range(0, 1 + own + count);
    NodeId w =
        build::broadcast(graph, x, image(n, joined({elements, taps}), joined({group, {c}})), kept);
    WindowsOp op{.axes = windowed, .taps = tap_axes};
    for (int64_t i = 0; i < count; ++i) {
      op.strides.push_back(random.within(1, 3));
      op.gaps.push_back(random.within(1, 4));
      op.dilations.push_back(random.within(-2, 3));
      op.low.emplace_back(random.within(-3, 5));
    }
    const NodeId zero = build::scalar(graph, dtype, 0);
    w = build::windows(graph, w, zero, std::move(op),
                       image(n, joined({places, taps}), joined({group, {c}})));
    const auto d_first = windowed[0];  // of the places of d, which has no taps
    DotOp dot;
    Axes of_windows = joined({{0}, windowed}), of_d = joined({{0}, range(d_first, count)});
    if (grouped) {
      dot.batch_left = {channel};
      dot.batch_right = {last ? 1 + count : 1};
    }
    dot.contract_left = of_windows;
    dot.contract_right = of_d;
    if (swaps) {
      std::swap(dot.batch_left, dot.batch_right);
      std::swap(dot.contract_left, dot.contract_right);
    }
    const NodeId y = build::dot(graph, swaps ? d : w, swaps ? w : d, dot);
    graph.set_outputs({{y, "y", {}}});
    return graph;
  }
};

template <class T>
int64_t number_of(const Graph& graph) {
  int64_t out = 0;
  for (size_t i = 0; i < graph.size(); ++i) out += graph[NodeId(i)].as<T>() != nullptr;
  return out;
}

bool has_gaps(const Graph& graph) {
  for (size_t i = 0; i < graph.size(); ++i)
    if (const auto* op = graph[NodeId(i)].as<WindowsOp>())
      if (std::ranges::any_of(op->gaps, [](int64_t gap) { return gap > 1; })) return true;
  return false;
}

/// That `made`, which the passes made from `graph`, computes the same.
void expect_same(const Graph& graph, const Graph& made, uint64_t seed) {
  const std::vector<HostTensor> inputs = fuzz::random_inputs(graph, seed);
  const CheckResult result =
      check_outputs(graph, inputs, interpret(made, inputs), Precision::Standard);
  EXPECT_TRUE(result.ok) << result.summary() << to_text(graph) << to_text(made);
}

TEST(WindowedDots, OfRandomShapes) {
  int products = 0, split = 0, shared = 0;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = RandomSum(seed).graph();
    const Graph one = windowed_dots(graph), parts = split_gaps(one, 0);
    const bool fires = number_of<ReduceOp>(one) == 0, splits = has_gaps(one) && !has_gaps(parts);
    products += fires;
    if (!fires) continue;
    expect_same(graph, one, seed);
    if (!splits) continue;
    // One product has all remainders, or some of them are empty.
    (number_of<DotOp>(parts) > 1 ? split : shared)++;
    expect_same(graph, parts, seed);
  }
  EXPECT_GE(products, 100);
  EXPECT_GE(split, 30);
  EXPECT_GE(shared, 50);
}

// There are fewer terms, and they have no gaps if the windows had no strides.
TEST(WindowedDots, OverPlaces) {
  int moved = 0;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = RandomPlaces(seed).graph(), other = split_gaps(graph);
    if (to_text(graph) == to_text(other)) continue;
    ++moved;
    EXPECT_EQ(number_of<DotOp>(other), 1);
    expect_same(graph, other, seed);
  }
  EXPECT_GE(moved, 200);
}

TEST(WindowedDots, OnAllMachines) {
  for (const char* name : {"cpu", "sim:sm_90", "sim:sm_80"}) {
    const Device device(name);
    for (uint64_t seed = 1000; seed < 1024; ++seed) {
      SCOPED_TRACE(fmt::format("{} on {}", seed, name));
      const Graph graph = RandomSum(seed).graph();
      const Graph parts = split_gaps(windowed_dots(graph), 0);
      const std::vector<HostTensor> inputs = fuzz::random_inputs(graph, seed);
      EXPECT_TRUE(testing::agrees(graph, inputs, device));
      EXPECT_TRUE(testing::agrees(parts, inputs, device));
      const Graph places = RandomPlaces(seed).graph();
      EXPECT_TRUE(testing::agrees(places, fuzz::random_inputs(places, seed), device));
    }
  }
}

// The bounds of strict precision permit neither another order of roundings nor NaN.
TEST(WindowedDots, NotUnderStrictPrecision) {
  CompileOptions options;
  options.precision = Precision::Strict;
  int passes = 0;
  options.observer = [&](const CompilePhase& phase) {
    passes += phase.stage == "windowed_dots" || phase.stage == "split_gaps";
  };
  compile(RandomSum(1).graph(), Device("cpu").target(), options);
  EXPECT_EQ(passes, 0);
}

}  // namespace
}  // namespace braze
