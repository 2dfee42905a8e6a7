// Gathers and scatters at places that are multiples of positions, of random shapes: what the pass
// makes of them, by the interpreter and by the kernels of all machines.
#include "compiler/passes/regular_indices.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ir/graph/build.h"
#include "ir/graph/interpret.h"
#include "ir/support/text.h"
#include "tests/compiler/run.h"
#include "tests/fuzz/generator.h"
#include "tests/fuzz/random.h"

namespace braze {
namespace {

using Axes = std::vector<int64_t>;
using Op = ElementwiseOp;

/// x of two or three axes, and indices along one of them, which are base + the sum of a step times
/// the position along each of up to three axes.
struct RandomPlaces {
  fuzz::Random random;
  Graph graph{"places"};
  Axes extents, steps;
  int64_t base = 0;

  explicit RandomPlaces(uint64_t seed) : random(seed) {}

  NodeId scalar(DType dtype, int64_t value) {
    return build::scalar(graph, dtype, static_cast<double>(value));
  }

  // The indices, written in one of several ways.
  NodeId indices(DType dtype) {
    Shape shape(std::vector<Expr>(extents.begin(), extents.end()));
    NodeId sum = build::broadcast(graph, scalar(dtype, base), shape, {});
    for (size_t a = 0; a < extents.size(); ++a) {
      const auto axis = static_cast<int64_t>(a);
      NodeId term;
      if (random.one_in(2)) {  // of the whole shape
        term = build::iota(graph, {dtype, shape}, axis);
        term = build::map(graph, Op::mul, {term, scalar(dtype, steps[a])});
      } else {  // along one axis, in another dtype
        const DType other = random.one_in(2) ? DType::I32 : DType::I64;
        term = build::iota(graph, {other, Shape({extents[a]})}, 0);
        term = build::map(graph, Op::mul, {scalar(other, steps[a]), term});
        term = build::convert(graph, term, dtype);
        if (random.one_in(2)) {
          term = build::reshape(graph, term, Shape({extents[a], 1}));
          term = build::reshape(graph, term, Shape({extents[a]}));
        }
        term = build::broadcast(graph, term, shape, {axis});
      }
      if (random.one_in(4)) {
        const NodeId negative = build::map(graph, Op::neg, {term});
        sum = build::map(graph, Op::sub, {sum, negative});
      } else {
        sum = build::map(graph, Op::add, {sum, term});
      }
    }
    return sum;
  }

  Graph run() {
    const auto rank = random.within(0, 3);
    for (int64_t a = 0; a < rank; ++a) {
      extents.push_back(random.one_in(5) ? 1 : random.within(2, 7));
      steps.push_back(random.within(random.one_in(6) ? -1 : 1, 5));
    }
    int64_t least = 0, greatest = 0;
    for (size_t a = 0; a < extents.size(); ++a)
      (steps[a] < 0 ? least : greatest) += steps[a] * (extents[a] - 1);
    base = random.within(0, 4) - least;
    const int64_t extent = base + greatest + random.within(1, 6);
    std::vector<Expr> dims;
    const int64_t axis = random.within(0, 2), axes = random.within(axis + 1, 3);
    for (int64_t a = 0; a < axes; ++a) dims.emplace_back(a == axis ? extent : random.within(1, 9));
    const DType at = random.one_in(2) ? DType::I32 : DType::I64;
    const DType dtype =
        random.pick({DType::F32, DType::F32, DType::BF16, DType::F16, DType::F64, DType::I32});
    const NodeId x = build::input(graph, "x", {dtype, Shape(dims)});
    const NodeId places = indices(at);
    if (random.one_in(2)) {
      graph.set_outputs({{build::gather(graph, x, places, axis), "y", {}}});
      return std::move(graph);
    }
    std::vector<Expr> of_updates(dims.begin(), dims.begin() + axis);
    of_updates.insert(of_updates.end(), extents.begin(), extents.end());
    of_updates.insert(of_updates.end(), dims.begin() + axis + 1, dims.end());
    const NodeId updates = build::input(graph, "u", {dtype, Shape(of_updates)});
    ScatterOp op{.axis = axis};
    if (random.one_in(4)) op.monoid = random.pick({Monoid::Max, Monoid::Min});
    if (random.one_in(8)) op.monoid.reset();
    graph.set_outputs({{build::scatter(graph, op, x, places, updates), "y", {}}});
    return std::move(graph);
  }
};

bool looks_up(const Graph& graph) {
  for (size_t i = 0; i < graph.size(); ++i)
    if (graph[NodeId(i)].as<GatherOp>() || graph[NodeId(i)].as<ScatterOp>()) return true;
  return false;
}

TEST(RegularIndices, OfRandomShapes) {
  int made = 0, kept = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = RandomPlaces(seed).run();
    const Graph other = regular_indices(graph);
    ++(looks_up(other) ? kept : made);
    const std::vector<HostTensor> inputs = fuzz::random_inputs(graph, seed);
    const CheckResult result = check_outputs(graph, inputs, interpret(other, inputs));
    EXPECT_TRUE(result.ok) << result.summary() << to_text(graph) << to_text(other);
  }
  EXPECT_GE(made, 600);
  EXPECT_GE(kept, 100);  // three axes, steps that are not positive, or nothing to combine by
}

TEST(RegularIndices, OnAllMachines) {
  for (const char* name : {"cpu", "sim:sm_90", "sim:sm_80"}) {
    const Device device(name);
    for (uint64_t seed = 2000; seed < 2040; ++seed) {
      SCOPED_TRACE(fmt::format("{} on {}", seed, name));
      const Graph graph = RandomPlaces(seed).run();
      EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, seed), device));
    }
  }
}

}  // namespace
}  // namespace braze
