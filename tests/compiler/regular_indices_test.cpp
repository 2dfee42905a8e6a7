// Gathers and scatters at places that are multiples of positions, of random shapes: what the pass
// makes of them, by the interpreter and by the kernels of all machines.
#include "compiler/passes/regular_indices.h"

#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "ir/graph/build.h"
#include "ir/graph/interpret.h"
#include "ir/support/text.h"
#include "ir/values/compare.h"
#include "tests/compiler/run.h"
#include "tests/fuzz/generator.h"
#include "tests/fuzz/random.h"

namespace braze {
namespace {

using Axes = std::vector<int64_t>;
using Op = ElementwiseOp;

/// x of up to three axes, and indices along one of them, which are base + the sum of a step times
/// the position along each of up to three axes.
struct RandomPlaces {
  uint64_t seed;
  fuzz::Random random{seed};
  Graph graph{"places"};
  Axes extents = {}, steps = {};
  int64_t base = 0, along = 0;  // the axis of x
  bool is_scatter = false;

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

  void run() {
    const int64_t rank = random.within(0, 3), long_axis = random.below(6);
    for (int64_t a = 0; a < rank; ++a) {
      extents.push_back(random.one_in(5) ? 1 : random.within(2, a == long_axis ? 30 : 7));
      steps.push_back(random.within(random.one_in(6) ? -1 : 1, 5));
    }
    int64_t least = 0, greatest = 0;
    for (size_t a = 0; a < extents.size(); ++a)
      (steps[a] < 0 ? least : greatest) += steps[a] * (extents[a] - 1);
    base = random.within(0, 4) - least;
    const int64_t extent = base + greatest + random.within(1, 6);
    std::vector<Expr> dims;
    along = random.within(0, 2);
    const int64_t axes = random.within(along + 1, 3);
    for (int64_t a = 0; a < axes; ++a) dims.emplace_back(a == along ? extent : random.within(1, 9));
    const DType at = random.one_in(2) ? DType::I32 : DType::I64;
    const DType dtype =
        random.pick({DType::F32, DType::F32, DType::BF16, DType::F16, DType::F64, DType::I32});
    const NodeId x = build::input(graph, "x", {dtype, Shape(dims)});
    const NodeId places = indices(at);
    is_scatter = !random.one_in(3);
    if (!is_scatter) return graph.set_outputs({{build::gather(graph, x, places, along), "y", {}}});
    std::vector<Expr> of_updates(dims.begin(), dims.begin() + along);
    of_updates.insert(of_updates.end(), extents.begin(), extents.end());
    of_updates.insert(of_updates.end(), dims.begin() + along + 1, dims.end());
    const NodeId updates = build::input(graph, "u", {dtype, Shape(of_updates)});
    ScatterOp op{.axis = along};
    if (random.one_in(3)) op.monoid = random.pick({Monoid::Prod, Monoid::Max, Monoid::Min});
    if (random.one_in(8)) op.monoid.reset();
    const std::optional<uint32_t> updated =
        random.one_in(3) ? std::optional<uint32_t>(0) : std::nullopt;
    graph.set_outputs({{build::scatter(graph, op, x, places, updates), "y", updated}});
  }

  // Random values, and zeros of both signs in x.
  std::vector<HostTensor> inputs() const {
    std::vector<HostTensor> out = fuzz::random_inputs(graph, seed);
    for (int64_t i = 0; i < out[0].numel(); i += 2) out[0].set_double(i, i % 3 == 0 ? 0.0 : -0.0);
    return out;
  }

  // Whether the elements of `y` that no update reaches have the bits of `x`.
  bool keeps_the_rest(const HostTensor& x, const HostTensor& y) const {
    std::vector<bool> reached(static_cast<size_t>(x.shape()[static_cast<size_t>(along)]));
    std::vector<int64_t> places{base};
    for (size_t a = 0; a < extents.size(); ++a) {
      const std::vector<int64_t> before = std::exchange(places, {});
      for (const int64_t place : before)
        for (int64_t i = 0; i < extents[a]; ++i) places.push_back(place + steps[a] * i);
    }
    for (const int64_t place : places) reached[static_cast<size_t>(place)] = true;
    int64_t inner = 1;
    for (size_t a = static_cast<size_t>(along) + 1; a < x.shape().size(); ++a)
      inner *= x.shape()[a];
    for (int64_t i = 0; i < x.numel(); ++i)
      if (!reached[static_cast<size_t>(i / inner) % reached.size()] &&
          x.get_bits(i) != y.get_bits(i))
        return false;
    return true;
  }
};

bool looks_up(const Graph& graph) {
  for (size_t i = 0; i < graph.size(); ++i)
    if (graph[NodeId(i)].as<GatherOp>() || graph[NodeId(i)].as<ScatterOp>()) return true;
  return false;
}

RandomPlaces random_places(uint64_t seed) {
  RandomPlaces out{seed};
  out.run();
  return out;
}

TEST(RegularIndices, OfRandomShapes) {
  const Target target = find_target("sm_90a").value();
  int made = 0, kept = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(seed);
    const RandomPlaces places = random_places(seed);
    const Graph& graph = places.graph;
    const Graph other = regular_scatters(regular_gathers(graph), target);
    ++(looks_up(other) ? kept : made);
    const std::vector<HostTensor> inputs = places.inputs(), got = interpret(other, inputs);
    const CheckResult result = check_outputs(graph, inputs, got);
    EXPECT_TRUE(result.ok) << result.summary() << to_text(graph) << to_text(other);
    EXPECT_TRUE(!places.is_scatter || places.keeps_the_rest(inputs[0], got[0]))
        << to_text(graph) << to_text(other);
  }
  EXPECT_GE(made, 600);
  EXPECT_GE(kept, 100);  // three axes, steps that are not positive, or nothing to combine by
}

TEST(RegularIndices, OnAllMachines) {
  for (const char* name : {"cpu", "sim:sm_90", "sim:sm_80"}) {
    const Device device(name);
    for (uint64_t seed = 2000; seed < 2040; ++seed) {
      SCOPED_TRACE(fmt::format("{} on {}", seed, name));
      const RandomPlaces places = random_places(seed);
      const std::vector<HostTensor> inputs = places.inputs();
      const auto got = testing::run(testing::compile_for(device, places.graph), device, inputs);
      const CheckResult result = testing::check(places.graph, inputs, got);
      EXPECT_TRUE(result.ok) << result.summary() << to_text(places.graph);
      EXPECT_TRUE(!places.is_scatter || places.keeps_the_rest(inputs[0], got[0]))
          << to_text(places.graph);
    }
  }
}

// Strict precision combines the updates of a place one after the other, beginning with x.
TEST(RegularIndices, StrictlyInOrder) {
  const CompileOptions strict{.precision = Precision::Strict};
  for (const Device& device : {Device("cpu"), testing::gpu_or("sim:sm_90")}) {
    for (uint64_t seed = 3000; seed < 3040; ++seed) {
      SCOPED_TRACE(fmt::format("{} on {}", seed, device.name()));
      const RandomPlaces places = random_places(seed);
      const std::vector<HostTensor> inputs = places.inputs();
      const auto program = testing::compile_for(device, places.graph, strict);
      const HostTensor got = testing::run(program, device, inputs).front();
      const Comparison same = compare(got, interpret(places.graph, inputs).front());
      EXPECT_TRUE(same.ok) << same.summary() << to_text(places.graph);
    }
    // Loaded indices, of which a GPU makes a sum over all updates otherwise.
    for (const char* how : {"add", "mul"}) {
      const Graph graph = testing::parse(fmt::format(
          R"(graph @loaded(%x: f32[5], %i: i32[40], %u: f32[40]) {{
  %y = scatter_{} %x, %i, %u {{axis: 0}} : f32[5]
  return %y
}})",
          how));
      std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 1);
      for (int64_t t = 0; t < 40; ++t) inputs[1].set_int(t, t * t % 5);
      const auto program = testing::compile_for(device, graph, strict);
      const HostTensor got = testing::run(program, device, inputs).front();
      const Comparison same = compare(got, interpret(graph, inputs).front());
      EXPECT_TRUE(same.ok) << device.name() << " " << how << " " << same.summary();
    }
  }
}

// Windows of a product may become a product over windows, which gives 0 where there is no update.
TEST(RegularIndices, KeepZerosBesideProducts) {
  const Graph graph =
      testing::parse(R"(graph @f(%x: bf16[2, 40, 16], %a: bf16[2, 30, 16], %w: bf16[3, 16, 16]) {
  %n = iota {axis: 0} : i32[30, 3]
  %k = iota {axis: 1} : i32[30, 3]
  %two = constant 2 : i32[]
  %m = mul %k, %two : i32[30, 3]
  %i = add %n, %m : i32[30, 3]
  %u = dot %a, %w {contract: [2] x [2]} : bf16[2, 30, 3, 16]
  %y = scatter_add %x, %i, %u {axis: 1} : bf16[2, 40, 16]
  return %y
})");
  std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 1);
  for (int64_t i = 0; i < inputs[0].numel(); ++i) inputs[0].set_double(i, -0.0);
  RandomPlaces places{.seed = 0, .extents = {30, 3}, .steps = {1, 2}, .along = 1};
  for (const Device& device : {Device("cpu"), testing::gpu_or("sim:sm_90")}) {
    const auto got = testing::run(testing::compile_for(device, graph), device, inputs);
    EXPECT_TRUE(testing::check(graph, inputs, got).ok) << device.name();
    EXPECT_TRUE(places.keeps_the_rest(inputs[0], got[0])) << device.name();
  }
}

// The same of a sum over all updates.
TEST(RegularIndices, LoadedIndicesKeepZeros) {
  const Graph graph = testing::parse(R"(graph @f(%x: f32[6], %i: i32[8], %u: f32[8]) {
  %y = scatter_add %x, %i, %u {axis: 0} : f32[6]
  return %y
})");
  std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 1);
  for (int64_t i = 0; i < 6; ++i) inputs[0].set_double(i, -0.0);
  for (int64_t t = 0; t < 8; ++t) inputs[1].set_int(t, t % 3);
  for (const Device& device : {Device("cpu"), testing::gpu_or("sim:sm_90")}) {
    const auto got = testing::run(testing::compile_for(device, graph), device, inputs);
    for (int64_t i = 3; i < 6; ++i)
      EXPECT_EQ(got[0].get_bits(i), inputs[0].get_bits(i)) << device.name();
  }
}

}  // namespace
}  // namespace braze
