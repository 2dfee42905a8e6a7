// Sums of results of products, of random shapes: what the pass makes of them, by the interpreter
// and by the kernels of all machines, against the bounds of what was written.
#include "compiler/passes/interchange_sums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "ir/graph/build.h"
#include "ir/graph/interchange.h"
#include "ir/graph/interpret.h"
#include "ir/support/text.h"
#include "tests/compiler/run.h"
#include "tests/fuzz/generator.h"
#include "tests/fuzz/random.h"

namespace braze {
namespace {

using Axes = std::vector<int64_t>;
using Op = ElementwiseOp;

/// Axes of four kinds: those of a batch, i, j and c. The sum over j of a[i, j] * (b x v)[i, j], and
/// the product a x v, where a is made of several factors.
struct RandomSum {
  fuzz::Random random;
  Graph graph{"sum"};
  DType dtype;
  Axes batch, i, j, c;
  std::vector<int64_t> extents;  // of all axes, by number

  explicit RandomSum(uint64_t seed) : random(seed) {
    dtype = random.pick({DType::F32, DType::F32, DType::BF16, DType::F16, DType::F64});
    // j has many more indices than c, or as many at times, so that the sum stays.
    batch = axes(random.within(0, 1), 3);
    i = axes(random.within(0, 2), 5);
    j = axes(random.within(1, 2), 9);
    c = axes(random.within(1, 2), 3);
  }

  Axes axes(int64_t count, int64_t most) {
    Axes out;
    for (int64_t n = 0; n < count; ++n) {
      out.push_back(std::ssize(extents));
      extents.push_back(random.one_in(30) ? 0 : random.within(1, most));
    }
    return out;
  }

  static Axes joined(std::initializer_list<Axes> lists) {
    Axes out;
    for (const Axes& list : lists) out.insert(out.end(), list.begin(), list.end());
    return out;
  }
  Axes shuffled(Axes list) {
    for (size_t n = list.size(); n > 1; --n)
      std::swap(list[n - 1], list[static_cast<size_t>(random.below(n))]);
    return list;
  }
  Shape shape(const Axes& list) const {
    std::vector<Expr> dims;
    for (const int64_t axis : list) dims.emplace_back(extents[static_cast<size_t>(axis)]);
    return Shape(std::move(dims));
  }
  NodeId input(DType type, const Axes& list) {
    return build::input(graph, "x" + std::to_string(graph.inputs().size()), {type, shape(list)});
  }
  NodeId map(Op op, std::vector<NodeId> operands) {
    return build::map(graph, op, std::move(operands));
  }
  static int64_t place(const Axes& list, int64_t axis) {
    return std::ranges::find(list, axis) - list.begin();
  }
  static Axes places(const Axes& list, const Axes& of) {
    Axes out;
    for (const int64_t axis : of) out.push_back(place(list, axis));
    return out;
  }
  NodeId ordered(NodeId x, const Axes& from, const Axes& to) {
    return from == to ? x : build::transpose(graph, x, places(from, to));
  }

  /// The dot of x and y, which have the axes `of_x` and `of_y`, over `summed`, in the order `to`.
  NodeId dot(NodeId x, Axes of_x, NodeId y, Axes of_y, const Axes& summed, const Axes& to,
             std::optional<DType> result) {
    if (random.one_in(2)) {
      std::swap(x, y);
      std::swap(of_x, of_y);
    }
    const Axes pairs = shuffled(batch), contracted = shuffled(summed);
    DotOp op{places(of_x, pairs), places(of_y, pairs), places(of_x, contracted),
             places(of_y, contracted)};
    Axes own = pairs;
    for (const Axes* list : {&of_x, &of_y})
      for (const int64_t axis : *list)
        if (!std::ranges::count(batch, axis) && !std::ranges::count(summed, axis))
          own.push_back(axis);
    return ordered(build::dot(graph, x, y, std::move(op), result), own, to);
  }

  /// A factor over `all`, of which `own` are its axes.
  NodeId factor(const Axes& own, const Axes& all, DType type) {
    return build::broadcast(graph, input(type, own), shape(all), places(all, own));
  }

  Graph run() {
    const bool half = is_half(dtype);
    const DType wide = half ? DType::F32 : dtype;
    const Axes rows = joined({batch, i}), all = joined({rows, j});
    const Axes of_b = shuffled(joined({rows, c})), of_v = shuffled(joined({batch, j, c}));
    const NodeId b = input(dtype, of_b), v = input(dtype, of_v);
    // What the other product has, and more: a row's number, or a condition on it.
    std::vector<NodeId> of_a = {input(wide, all)};
    if (random.one_in(2)) of_a.push_back(factor(j, all, wide));
    if (random.one_in(3)) of_a.push_back(build::scalar(graph, wide, 0.75));
    std::vector<NodeId> conditions, of_sum;
    if (random.one_in(3)) conditions.push_back(factor(all, all, DType::Bool));
    if (random.one_in(4)) conditions.push_back(factor(joined({batch, j}), all, DType::Bool));
    if (random.one_in(3)) of_sum.push_back(factor(rows, all, wide));
    const NodeId zero = build::scalar(graph, wide, 0);
    const auto times = [&](NodeId x, std::vector<NodeId> factors, std::vector<NodeId> where) {
      for (const NodeId f : factors) x = map(Op::mul, {x, f});
      for (const NodeId f : where) {
        const NodeId none = build::broadcast(graph, zero, shape(all), {});
        x = map(Op::select, {f, x, none});
      }
      return random.one_in(3) ? map(Op::neg, {x}) : x;
    };
    NodeId a = times(of_a[0], {of_a.begin() + 1, of_a.end()}, conditions);
    if (random.one_in(12)) a = map(Op::exp, {a});  // another a
    if (half) a = build::convert(graph, a, dtype);
    const Axes of_y = shuffled(joined({rows, c}));
    const NodeId y = dot(a, all, v, of_v, j, of_y, {});
    NodeId term = dot(b, of_b, v, of_v, c, all, half && random.one_in(2) ? wide : dtype);
    if (half && graph[term].type.dtype != wide) term = build::convert(graph, term, wide);
    std::reverse(of_a.begin(), of_a.end());
    of_a.insert(of_a.end(), of_sum.begin(), of_sum.end());
    term = times(term, of_a, conditions);
    if (random.one_in(3)) term = map(Op::div, {term, factor(rows, all, wide)});
    NodeId sum;
    if (random.one_in(3)) {  // rows and columns as two axes
      const Shape flat{shape(rows).numel(), shape(j).numel()};
      sum = build::reduce(graph, Monoid::Sum, build::reshape(graph, term, flat), {1});
    } else {
      sum = build::reduce(graph, Monoid::Sum, term, places(all, j));
    }
    graph.set_outputs({{sum, "r", {}}, {y, "y", {}}});
    return std::move(graph);
  }
};

bool fires(const Graph& graph) {
  return std::ranges::any_of(find_interchanges(graph), [](const Interchange& form) {
    return form.verdict == &interchanges::kInterchanged;
  });
}

TEST(InterchangeSums, OfRandomShapes) {
  int made = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = RandomSum(seed).run();
    if (!fires(graph)) continue;
    ++made;
    const Graph other = interchange_sums(graph);
    const std::vector<HostTensor> inputs = fuzz::random_inputs(graph, seed);
    const CheckResult result = check_outputs(graph, inputs, interpret(other, inputs));
    EXPECT_TRUE(result.ok) << result.summary() << to_text(graph) << to_text(other);
    // And the form that was written stays right.
    EXPECT_TRUE(check_outputs(graph, inputs, interpret(graph, inputs)).ok) << to_text(graph);
  }
  EXPECT_GE(made, 250);
}

TEST(InterchangeSums, OnAllMachines) {
  for (const char* name : {"cpu", "sim:sm_90", "sim:sm_80"}) {
    const Device device(name);
    for (uint64_t seed = 1000; seed < 1020; ++seed) {
      SCOPED_TRACE(fmt::format("{} on {}", seed, name));
      const Graph graph = RandomSum(seed).run();
      EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, seed), device));
    }
  }
}

// Infinities and NaN may be others, and what they do not reach is right.
TEST(InterchangeSums, OfInfinities) {
  const Graph graph =
      testing::parse(R"(graph @sum(%p: f32[40, 30], %v: f32[30, 8], %g: f32[40, 8]) {
  %y = dot %p, %v {contract: [1] x [0]} : f32[40, 8]
  %dp = dot %g, %v {contract: [1] x [1]} : f32[40, 30]
  %0 = mul %dp, %p : f32[40, 30]
  %r = reduce sum %0 {axes: [1]} : f32[40]
  return %r, %y
})");
  ASSERT_TRUE(fires(graph));
  std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 1);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  inputs[0].set_double(3 * 30 + 5, 0);          // times an infinity
  inputs[0].set_double(7 * 30 + 5, kInfinity);  // and an infinity times another one
  inputs[1].set_double(5 * 8 + 2, kInfinity);
  inputs[2].set_double(9 * 8 + 1, std::numeric_limits<double>::quiet_NaN());
  for (const char* name : {"cpu", "sim:sm_90"})
    EXPECT_TRUE(testing::agrees(graph, inputs, Device(name)));
  const CheckResult result =
      check_outputs(graph, inputs, interpret(interchange_sums(graph), inputs));
  EXPECT_TRUE(result.ok) << result.summary();
}

// The bounds of strict precision permit no other order of sums of products.
TEST(InterchangeSums, NotUnderStrictPrecision) {
  CompileOptions options;
  options.precision = Precision::Strict;
  int passes = 0;
  options.observer = [&](const CompilePhase& phase) {
    passes += phase.stage == "interchange_sums";
  };
  compile(RandomSum(1).run(), Device("cpu").target(), options);
  EXPECT_EQ(passes, 0);
}

}  // namespace
}  // namespace braze
