// Sorts of random shapes and dtypes: what the pass makes of them, by the interpreter and by the
// kernels of all machines.
#include "compiler/passes/merge_sorts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ir/graph/build.h"
#include "ir/graph/interpret.h"
#include "ir/support/text.h"
#include "tests/compiler/run.h"
#include "tests/fuzz/generator.h"
#include "tests/fuzz/random.h"

namespace braze {
namespace {

constexpr DType kSorted[] = {DType::F32, DType::F32, DType::BF16, DType::F16, DType::F64,
                             DType::I32, DType::I64, DType::U32,  DType::U64, DType::I8,
                             DType::U8,  DType::I16, DType::U16,  DType::Bool};

/// A sort of up to `most` elements along one of up to three axes, of which all or a few are wanted.
Graph random_sort(fuzz::Random& random, int64_t most) {
  Graph graph("sort");
  const auto rank = static_cast<size_t>(random.within(1, 3));
  const auto axis = static_cast<size_t>(random.within(0, static_cast<int64_t>(rank) - 1));
  std::vector<Expr> dims;
  int64_t extent = 0;
  for (size_t a = 0; a < rank; ++a) {
    int64_t size = random.one_in(12) ? 0 : random.within(1, 4);
    if (a == axis) extent = size = random.one_in(6) ? random.within(0, 3) : random.within(0, most);
    dims.emplace_back(size);
  }
  const NodeId x = build::input(graph, "x", {random.pick(kSorted), Shape(dims)});
  int64_t count = extent;
  if (random.one_in(3)) count = random.within(0, extent);
  if (random.one_in(4)) count = std::min<int64_t>(extent, random.within(0, 40));
  const NodeId order =
      build::arg_sort(graph, {static_cast<int64_t>(axis), random.one_in(2)}, x, count);
  graph.set_outputs({{order, "order", {}}});
  return graph;
}

bool sorts(const Graph& graph) {
  for (size_t i = 0; i < graph.size(); ++i)
    if (graph[NodeId(i)].as<ArgSortOp>()) return true;
  return false;
}

// Indices are compared exactly: the order is a function of the elements.
void expect_equal(const Graph& graph, std::span<const HostTensor> inputs,
                  const std::vector<HostTensor>& got) {
  const std::vector<HostTensor> expected = interpret(graph, inputs);
  ASSERT_EQ(expected.size(), got.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(identical(expected[i], got[i])) << to_text(graph);
}

TEST(MergeSorts, OfRandomShapes) {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    fuzz::Random random(seed);
    const Graph graph = random_sort(random, seed % 5 == 0 ? 1500 : 300);
    const Graph merged = merge_sorts(graph);
    ASSERT_FALSE(sorts(merged));
    const std::vector<HostTensor> inputs = fuzz::random_inputs(graph, seed);
    expect_equal(graph, inputs, interpret(merged, inputs));
  }
}

TEST(MergeSorts, OnAllMachines) {
  for (const char* name : {"cpu", "sim:sm_90", "sim:sm_80"}) {
    const Device device(name);
    for (uint64_t seed = 1000; seed < (name[0] == 'c' ? 1040 : 1008); ++seed) {
      SCOPED_TRACE(fmt::format("{} on {}", seed, name));
      fuzz::Random random(seed);
      const Graph graph = random_sort(random, seed % 4 == 0 ? 700 : 200);
      const std::vector<HostTensor> inputs = fuzz::random_inputs(graph, seed);
      expect_equal(graph, inputs,
                   testing::run(testing::compile_for(device, graph), device, inputs));
    }
  }
}

// Many equal elements, zeros of both signs, infinities and NaN in runs that are merged several
// times.
TEST(MergeSorts, EqualElementsKeepTheirOrder) {
  for (const bool descending : {false, true}) {
    Graph graph("ties");
    const NodeId x = build::input(graph, "x", {DType::F32, Shape({2, 700})});
    graph.set_outputs({{build::arg_sort(graph, {1, descending}, x, 700), "order", {}}});
    HostTensor values(DType::F32, {2, 700});
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    constexpr double kValues[] = {0.0, -0.0, 1, -1, kInfinity, -kInfinity, std::nan(""), 1e-45};
    fuzz::Random random(3);
    for (int64_t i = 0; i < values.numel(); ++i) values.set_double(i, kValues[random.within(0, 7)]);
    const std::vector<HostTensor> inputs = {values};
    const Device device = testing::test_device();
    const auto got = testing::run(testing::compile_for(device, graph), device, inputs);
    expect_equal(graph, inputs, got);
    // The interpreter is judged as well: neighbours in the order are in order.
    for (int64_t i = 0; i + 1 < 700; ++i) {
      const int64_t a = got[0].get_int(i), b = got[0].get_int(i + 1);
      const double one = values.get_double(descending ? b : a);
      const double other = values.get_double(descending ? a : b);
      const bool equal = one == other || (std::isnan(one) && std::isnan(other));
      EXPECT_TRUE(equal ? a < b : std::isnan(other) || one < other) << i;
    }
  }
}

// The number of lines is known only when the program runs, and each line has pieces of its own.
TEST(MergeSorts, AnyNumberOfLines) {
  const Graph graph = testing::parse(R"(
symbol n: 0..4096
graph @lines(%x: bf16[n, 300]) {
  %order = argsort %x {axis: 1, descending: true} : i64[n, 20]
  return %order
}
)");
  for (const char* name : {"cpu", "sim:sm_90"}) {
    const Device device(name);
    const auto program = testing::compile_for(device, graph);
    for (const int64_t lines : {0, 1, 7}) {
      fuzz::Random random(static_cast<uint64_t>(lines));
      HostTensor x(DType::BF16, {lines, 300});
      for (int64_t i = 0; i < x.numel(); ++i)
        x.set_double(i, static_cast<double>(random.within(-90, 90)));
      const std::vector<HostTensor> inputs = {x};
      expect_equal(graph, inputs, testing::run(program, device, inputs));
    }
  }
}

// The first elements are looked for in a few parts of each line. Equal elements of several parts,
// of which not all are wanted, keep their order too.
TEST(MergeSorts, FirstOfLongLines) {
  for (const auto& [extent, count] : {std::pair{601, 2}, {900, 1}, {4000, 50}}) {
    const Graph graph = testing::parse(fmt::format(R"(
symbol n: 0..4096
graph @lines(%x: bf16[n, {0}]) {{
  %down = argsort %x {{axis: 1, descending: true}} : i64[n, {1}]
  %up = argsort %x {{axis: 1}} : i64[n, {1}]
  return %down, %up
}}
)",
                                                   extent, count));
    for (const char* name : {"cpu", "sim:sm_90"}) {
      const Device device(name);
      if (name[0] == 's' && extent > 1000) continue;  // takes long
      const auto program = testing::compile_for(device, graph);
      for (const int64_t lines : {0, 1, 3}) {
        fuzz::Random random(static_cast<uint64_t>(lines));
        HostTensor x(DType::BF16, {lines, extent});
        const int64_t most = random.pick({2, 40});
        for (int64_t i = 0; i < x.numel(); ++i)
          x.set_double(i, static_cast<double>(random.within(-most, most)));
        const std::vector<HostTensor> inputs = {x};
        expect_equal(graph, inputs, testing::run(program, device, inputs));
      }
    }
  }
}

// A sort reads its constants at thousands of places. They are written in the kernels that read
// them.
TEST(MergeSorts, ConstantsAreNoKernels) {
  const Graph graph = testing::parse(R"(
graph @logits(%x: f32[64, 128256]) {
  %order = argsort %x {axis: 1, descending: true} : i64[64, 50]
  return %order
}
)");
  CompileOptions options;
  options.assemble = false;
  for (const Launch& launch : compile(graph, find_target("sm_90a").value(), options).launches)
    EXPECT_GT(launch.bytes_written.as_constant().value_or(0), 8) << launch.name;
}

}  // namespace
}  // namespace braze
