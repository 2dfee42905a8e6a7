// Sums whose terms are placed by loaded indices: every dtype, shape and schedule gives the bits
// that adding term after term gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <thread>

#include "braze/jit.h"
#include "braze/tensor.h"
#include "compiler/codegen/code_generator.h"
#include "compiler/fusion/partition.h"
#include "compiler/loops/tile_loops.h"
#include "ir/graph/interpret.h"
#include "ir/support/text.h"
#include "tests/compiler/run.h"
#include "tests/fuzz/generator.h"

namespace braze {
namespace {

using testing::parse;
using Extents = std::vector<int64_t>;

std::string text(const Extents& extents) {
  return "[" + join(extents, ", ", [](int64_t n) { return std::to_string(n); }) + "]";
}

struct Case {
  Extents x, indices;
  size_t axis = 0;

  Extents updates() const {
    Extents shape(x.begin(), x.begin() + static_cast<ptrdiff_t>(axis));
    shape.insert(shape.end(), indices.begin(), indices.end());
    shape.insert(shape.end(), x.begin() + static_cast<ptrdiff_t>(axis) + 1, x.end());
    return shape;
  }
  Graph graph(std::string_view dtype, std::string_view index = "i64") const {
    return parse(fmt::format(R"(graph @main(%x: {0}{1}, %i: {5}{2}, %u: {0}{3}) {{
  %y = scatter_add %x, %i, %u {{axis: {4}}} : {0}{1}
  return %y
}})",
                             dtype, text(x), text(indices), text(updates()), axis, index));
  }
  // Random values, and indices that repeat; `spread` > 1 leaves most rows out.
  std::vector<HostTensor> inputs(const Graph& graph, int64_t spread = 1) const {
    std::vector<HostTensor> values = fuzz::random_inputs(graph, 5);
    const int64_t rows = x[axis];
    for (int64_t t = 0; t < values[1].numel(); ++t)
      values[1].set_int(t,
                        rows == 0 ? 0 : (t * t * 7 + t / 3) % std::max<int64_t>(rows / spread, 1));
    return values;
  }
};

// Without width, with rows that no vector divides, with axes before; few, many and no terms; one
// row and none.
const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {{50, 37}, {100}, 0},      {{50, 37}, {7, 11}, 0},   {{300}, {1000}, 0},
      {{5, 40}, {90}, 1},        {{4, 50, 33}, {65}, 1},   {{3, 9, 4, 5}, {40}, 1},
      {{2, 7, 3}, {4, 3, 5}, 0}, {{1, 40}, {33}, 0},       {{1}, {70}, 0},
      {{40, 1}, {64}, 0},        {{40, 64}, {}, 0},        {{40, 64}, {0}, 0},
      {{40, 64}, {1}, 0},        {{0, 64}, {0}, 0},        {{64, 0}, {3}, 0},
      {{700, 16}, {32}, 0},      {{2, 600, 130}, {200}, 1}};
  return all;
}

// Term after term, as the interpreter adds: not only within the bound of a sum.
::testing::AssertionResult same_bits(const Graph& graph, const std::vector<HostTensor>& inputs,
                                     const std::vector<HostTensor>& got) {
  const std::vector<HostTensor> expected = interpret(graph, inputs);
  for (size_t i = 0; i < expected.size(); ++i)
    if (!identical(expected[i], got[i]))
      return ::testing::AssertionFailure() << "output " << i << " of\n" << to_text(graph);
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult runs_exactly(const Graph& graph, const std::vector<HostTensor>& inputs,
                                        const Device& device, const CompileOptions& options = {}) {
  return same_bits(graph, inputs,
                   testing::run(testing::compile_for(device, graph, options), device, inputs));
}

TEST(Placed, EveryShape) {
  for (const Device& device : {Device("cpu"), Device("sim:cpu")})
    for (const Case& c : cases())
      for (const char* index : {"i64", "i32"}) {
        const Graph graph = c.graph("f32", index);
        EXPECT_TRUE(runs_exactly(graph, c.inputs(graph), device));
      }
}

TEST(Placed, EveryDType) {
  for (const char* dtype : {"f16", "bf16", "f32", "f64", "i32", "i64", "u32"})
    for (const Case& c : {Case{{50, 37}, {300}, 0}, Case{{3, 40}, {200}, 1}}) {
      const Graph graph = c.graph(dtype);
      EXPECT_TRUE(runs_exactly(graph, c.inputs(graph), "cpu"));
      EXPECT_TRUE(runs_exactly(graph, c.inputs(graph), "sim:cpu"));
    }
}

// The simulator says no: an index out of range is an error there, as in the interpreter.
TEST(Placed, DevicesClampIndices) {
  const Case c{{50, 37}, {100}, 0};
  const Graph graph = c.graph("f32");
  std::vector<HostTensor> inputs = c.inputs(graph), clamped = inputs;
  for (int64_t t = 0; t < 100; t += 3) {
    inputs[1].set_int(t, t % 2 ? -t - 1 : 50 + (int64_t{1} << (t % 60)));
    clamped[1].set_int(t, t % 2 ? 0 : 49);
  }
  const auto program = testing::compile_for("cpu", graph);
  EXPECT_TRUE(same_bits(graph, clamped, testing::run(program, "cpu", inputs)));
}

TEST(Placed, AllTermsOfOneRow) {
  const Case c{{200, 70}, {500}, 0};
  const Graph graph = c.graph("bf16");
  std::vector<HostTensor> inputs = c.inputs(graph);
  for (const int64_t row : {0, 123, 199}) {
    for (int64_t t = 0; t < 500; ++t) inputs[1].set_int(t, row);
    EXPECT_TRUE(runs_exactly(graph, inputs, "cpu"));
  }
}

TEST(Placed, SymbolicCounts) {
  const Graph graph = parse(R"(symbol n: 0..1000
symbol m: 1..300
graph @main(%x: f32[m, 20], %i: i32[n], %u: f32[n, 20]) {
  %y = scatter_add %x, %i, %u {axis: 0} : f32[m, 20]
  return %y
})");
  for (const Device& device : {Device("cpu"), Device("sim:cpu")}) {
    const auto program = testing::compile_for(device, graph);
    for (const auto& [rows, terms] : {std::pair(1, 0), {1, 5}, {300, 1000}, {17, 31}, {100, 33}}) {
      const Case c{{rows, 20}, {terms}, 0};
      const std::vector<HostTensor> inputs = c.inputs(c.graph("f32", "i32"));
      EXPECT_TRUE(same_bits(graph, inputs, testing::run(program, device, inputs)));
    }
  }
}

TEST(Placed, EveryScheduleAndNumberOfThreads) {
  const Case c{{2, 150, 70}, {400}, 1};
  const Graph graph = c.graph("f32");
  const std::vector<HostTensor> inputs = c.inputs(graph);
  const std::string kernel = testing::compile_for("cpu", graph)->launches.at(0).name;
  for (const char* steps :
       {"whole k; slabs %y k 16; slabs y k 16; on i grid; seek r; keep %y chip",
        "enclose j 7; whole k; slabs %y k 16; slabs y k 16; tuple j i; on j grid; "
        "split r 32 padded; seek r.2; keep %y chip",
        "enclose j 40; split k 32 padded; whole k.2; slabs %y k 8; slabs y k 8; tuple j i; "
        "tuple j k; on j grid; split r 64 padded; seek r.2; keep %y chip",
        "enclose j 1; split k 16 padded; whole k.2; tuple j i; tuple j k; on j grid; "
        "split r 16; seek r.2; keep %y chip",
        "enclose j 64; whole k; slabs %y k 1; slabs y k 1; tuple j i; on j grid; "
        "split r 8 padded; seek r.2; keep %y chip",
        "enclose j 30; split k 48 padded; whole k.2; tuple j i; tuple j k; on j grid; "
        "split r 256 padded; seek r.2; keep %y chip",
        "enclose j 20; whole k; on j grid; keep %y chip"}) {
    CompileOptions options;
    options.schedules[kernel] = steps;
    const auto program = testing::compile_for("cpu", graph, options);
    ASSERT_EQ(program->launches.at(0).schedule, options.schedules[kernel]);
    EXPECT_TRUE(same_bits(graph, inputs, testing::run(program, "cpu", inputs))) << steps;
    EXPECT_TRUE(runs_exactly(graph, inputs, "sim:cpu", options)) << steps;
  }
  const auto program = testing::compile_for("cpu", graph);
  for (const int threads : {1, 2, 5, 64}) {
    set_cpu_threads(threads);
    EXPECT_TRUE(same_bits(graph, inputs, testing::run(program, "cpu", inputs))) << threads;
  }
  set_cpu_threads(static_cast<int>(std::thread::hardware_concurrency()));
}

TEST(Placed, SumsOutsideTheResultAreRefused) {
  const Case c{{50, 37}, {100}, 0};
  const Graph graph = c.graph("bf16");
  CompileOptions options;
  options.schedules[testing::compile_for("cpu", graph)->launches.at(0).name] =
      "on j grid; keep %y result";
  try {
    testing::compile_for("cpu", graph, options);
    FAIL() << "sums of bf16 are f32";
  } catch (const Error& error) {
    EXPECT_EQ(error.code().name, "memory-order");
  }
}

// What is computed of each term and of each sum happens on the way; so does what the sums begin
// with.
TEST(Placed, ComputesWithItsNeighbours) {
  const Graph graph =
      parse(R"(graph @main(%w: f32[90, 40], %i: i32[4, 25], %g: bf16[4, 25, 40], %s: f32[4, 25]) {
  %z = neg %w : f32[90, 40]
  %f = convert %g : f32[4, 25, 40]
  %b = broadcast %s {axes: [0, 1]} : f32[4, 25, 40]
  %u = mul %f, %b : f32[4, 25, 40]
  %d = scatter_add %z, %i, %u {axis: 0} : f32[90, 40]
  %y = sub %w, %d : f32[90, 40]
  return %y, %d
})");
  std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 3);
  for (int64_t t = 0; t < 100; ++t) inputs[1].set_int(t, t * 13 % 90);
  for (const Device& device : {Device("cpu"), Device("sim:cpu")}) {
    const auto program = testing::compile_for(device, graph);
    EXPECT_EQ(program->launches.size(), 1u) << program->report;
    const auto result = testing::check(graph, inputs, testing::run(program, device, inputs));
    EXPECT_TRUE(result.ok) << result.summary();
  }
}

// The kernel of a placed reduction alone, as the rule for the target tiles it.
std::shared_ptr<const Program> kernel_for(const Target& target, const Graph& graph) {
  const LoopForms forms(graph);
  const Partition parts = partition(forms, target);
  EXPECT_EQ(parts.fusions.size(), 1u);
  const Fusion& fusion = parts.fusions.front();
  const auto made = tile_loops({forms, fusion, target, "placed"});
  return std::make_shared<const Program>(compile(std::get<TreeTiling>(made).tiled.program, target));
}

::testing::AssertionResult kernel_agrees(const Device& device, const Graph& graph,
                                         const std::vector<HostTensor>& inputs) {
  const auto program = kernel_for(device.target(), graph);
  const HostTensor expected = interpret(graph, inputs).front();
  const HostTensor got = testing::run(program, device, inputs).front();
  if (identical(expected, got)) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << program->launches[0].schedule << to_text(graph);
}

TEST(Placed, KernelsForGpus) {
  const Device device("sim:sm_90");
  for (const Case& c : cases()) {
    if (c.x[0] == 0 || c.x.back() == 0) continue;  // nothing to compute
    const Graph graph = c.graph("f32");
    EXPECT_TRUE(kernel_agrees(device, graph, c.inputs(graph)));
  }
  for (const char* dtype : {"bf16", "f64", "i32"})
    for (const char* index : {"i64", "i32"}) {
      const Case c{{20, 300}, {2100}, 0};
      const Graph graph = c.graph(dtype, index);
      EXPECT_TRUE(kernel_agrees(device, graph, c.inputs(graph)));
    }
}

// A GPU sums over all terms for every element where there are few, and places them where there are
// many; both codes assemble.
TEST(Placed, GpusPlaceTermsInLargeResults) {
  const Target target = find_target("sm_90a").value();
  for (const int64_t rows : {50'000, 100}) {
    const Case c{{rows, 512}, {8192}, 0};
    for (const GpuCode code : {GpuCode::Ptx, GpuCode::Nvrtc}) {
      if (code == GpuCode::Nvrtc && nvrtc_name().empty()) continue;
      const Program program = compile(c.graph("f32"), target, {.gpu_code = code});
      EXPECT_EQ(program.launches[0].schedule.find("seek") != std::string::npos, rows == 50'000)
          << program.launches[0].schedule;
    }
  }
  if (nvrtc_name().empty()) GTEST_SKIP() << "no NVRTC here; with LLVM's PTX all is well";
}

// A donated argument takes the terms where it lies; rows without terms are not touched.
TEST(Placed, InPlace) {
  const Graph graph = parse(R"(graph @main(%x: f32[500, 37], %i: i64[60], %u: f32[60, 37]) {
  %y = scatter_add %x, %i, %u {axis: 0} : f32[500, 37]
  return %y updates %x
})");
  const Case c{{500, 37}, {60}, 0};
  const std::vector<HostTensor> inputs = c.inputs(c.graph("f32"), 4);
  for (const Device& device : {Device("cpu"), Device("sim:cpu")}) {
    const auto program = testing::compile_for(device, graph);
    ASSERT_EQ(program->launches.size(), 1u);
    EXPECT_NE(program->launches[0].schedule.find("keep %y result"), std::string::npos)
        << program->launches[0].schedule;
    EXPECT_TRUE(same_bits(graph, inputs, testing::run(program, device, inputs)));
  }
}

// A constant that replaces an input, and that a scatter reads, has one memory: a kernel that writes
// it must not write to the program's constants, nor read them in place of the input.
TEST(Placed, AConstantInPlaceOfAnInput) {
  const Graph graph = parse(R"(graph @main(%x: f32[], %y: f32[1], %i: i64[]) {
  %a = exp %x : f32[]
  %c = constant 0 : f32[]
  %t = scatter_add %y, %i, %c {axis: 0} : f32[1]
  return %a, %c updates %x, %t
})");
  std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 5);
  inputs[2].set_int(0, 0);
  for (const bool by_cost : {true, false})
    for (const Device& device : {Device("cpu"), Device("sim:cpu"), Device("sim:sm_90")}) {
      const auto program = testing::compile_for(device, graph, {.by_cost = by_cost});
      for (const Launch& launch : program->launches) {
        if (!launch.is_kernel()) continue;
        const Slot& written = program->slots[launch.buffers.back()];
        EXPECT_NE(written.kind, Slot::Kind::Constant) << launch.name;
      }
      EXPECT_TRUE(testing::agrees(graph, inputs, device, {.by_cost = by_cost})) << device.name();
    }
}

// What is put in place is, whatever its type; how much lies there does not matter.
TEST(Placed, SetsInPlace) {
  for (const char* dtype : {"f32", "bf16", "i8", "bool", "f64"})
    for (const int rows : {500, 40000}) {
      const Graph graph =
          parse(fmt::format(R"(graph @main(%x: {0}[{1}, 37], %i: i64[6], %u: {0}[6, 37]) {{
  %y = scatter_set %x, %i, %u {{axis: 0}} : {0}[{1}, 37]
  return %y updates %x
}})",
                            dtype, rows));
      std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 5);
      for (int64_t t = 0; t < 6; ++t) inputs[1].set_int(t, t * t % 5);
      for (const Device& device : {Device("cpu"), Device("sim:cpu")}) {
        const auto program = testing::compile_for(device, graph);
        ASSERT_EQ(program->launches.size(), 1u);
        EXPECT_NE(program->launches[0].schedule.find("keep %y result"), std::string::npos)
            << program->launches[0].schedule;
        const auto bytes = static_cast<int64_t>(size_of(inputs[0].dtype()));
        EXPECT_EQ(program->launches[0].bytes_written.as_constant(), 6 * 37 * bytes);
        EXPECT_EQ(program->launches[0].bytes_read.as_constant(), 6 * (37 * bytes + 8));
        if (rows > 500) continue;
        EXPECT_TRUE(same_bits(graph, inputs, testing::run(program, device, inputs))) << dtype;
      }
    }
}

// A part of three axes goes where three starts say, in place. How much lies there does not matter,
// and neither do starts that are beyond the end.
TEST(Placed, DynamicUpdatesMoveTheirPartOnly) {
  const auto step = jit([](Tensor x, Tensor part, Tensor i, Tensor j, Tensor k) {
    return update(x, dynamic_update(x, part, {i, j, k}));
  });
  for (const int64_t rows : {50, 40000, 400000}) {
    const Spec start = spec(i32, {});
    const std::string text =
        step.graph(spec(f32, {6, rows, 10}), spec(f32, {2, 3, 4}), start, start, start);
    const Graph graph = parse_graph(text, "test");
    for (const Device& device : {Device("cpu"), Device("sim:cpu"), Device("sim:sm_90")}) {
      const auto program = testing::compile_for(device, graph);
      ASSERT_EQ(program->launches.size(), 1u) << program->report;
      // A GPU compares the places of a small array with the indices of all terms, which is faster.
      if (rows > 50 || device.name() != "sim:sm_90") {
        const Launch& launch = program->launches[0];
        EXPECT_EQ(launch.bytes_written.as_constant(), 2 * 3 * 4 * 4) << device.name();
        EXPECT_EQ(launch.bytes_read.as_constant(), 2 * 3 * 4 * 4 + 3 * 4) << device.name();
      }
      if (rows > 50) continue;
      std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 5);
      for (const auto& starts : {std::array{0, 0, 0}, {3, 17, 5}, {4, 47, 6}, {9, 49, -1}}) {
        for (size_t axis = 0; axis < 3; ++axis) inputs[2 + axis].set_int(0, starts[axis]);
        EXPECT_TRUE(same_bits(graph, inputs, testing::run(program, device, inputs)))
            << device.name();
      }
    }
  }
}

// Each way to combine, where nothing is updated in place and something follows.
TEST(Placed, EveryCombination) {
  for (const char* how : {"set", "mul", "max", "min"})
    for (const char* dtype : {"f32", "f16", "i32"}) {
      const Graph graph =
          parse(fmt::format(R"(graph @main(%x: {1}[50, 37], %i: i64[60], %u: {1}[60, 37]) {{
  %s = scatter_{0} %x, %i, %u {{axis: 0}} : {1}[50, 37]
  %y = neg %s : {1}[50, 37]
  return %y
}})",
                            how, dtype));
      std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 5);
      for (int64_t t = 0; t < 60; ++t) inputs[1].set_int(t, t * 7 % 50);
      for (const Device& device : {Device("cpu"), Device("sim:cpu"), Device("sim:sm_90")}) {
        const auto program = testing::compile_for(device, graph);
        const auto result = testing::check(graph, inputs, testing::run(program, device, inputs));
        EXPECT_TRUE(result.ok) << how << " " << dtype << " " << result.summary();
      }
    }
}

// Of a sum in 16 bits the accumulators cannot be the result; nor can those of what begins
// elsewhere.
TEST(Placed, InPlaceThroughTheChip) {
  for (const char* graph_text : {R"(graph @main(%x: bf16[90, 37], %i: i64[60], %u: bf16[60, 37]) {
  %y = scatter_add %x, %i, %u {axis: 0} : bf16[90, 37]
  return %y updates %x
})",
                                 R"(graph @main(%x: f32[90, 37], %i: i64[60], %u: f32[60, 37]) {
  %z = neg %x : f32[90, 37]
  %y = scatter_add %z, %i, %u {axis: 0} : f32[90, 37]
  return %y updates %x
})",
                                 R"(graph @main(%x: f32[90, 37], %i: i64[60], %u: f32[60, 37]) {
  %z = neg %x : f32[90, 37]
  %s = scatter_add %z, %i, %u {axis: 0} : f32[90, 37]
  %y = mul %s, %x : f32[90, 37]
  return %y updates %x
})"}) {
    const Graph graph = parse(graph_text);
    std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 3);
    for (int64_t t = 0; t < 60; ++t) inputs[1].set_int(t, t * t % 90);
    for (const Device& device : {Device("cpu"), Device("sim:cpu")}) {
      const auto program = testing::compile_for(device, graph);
      ASSERT_EQ(program->launches.size(), 1u) << program->report;
      EXPECT_EQ(program->launches[0].schedule.find("keep %y result"), std::string::npos);
      EXPECT_TRUE(same_bits(graph, inputs, testing::run(program, device, inputs)));
    }
  }
}

// An axis as long as that of the terms is another axis all the same.
TEST(Placed, BesideResultsOfTheTermsLength) {
  for (const char* result : {"i32[3, 74, 7]", "i32[3, 74, 8]"}) {
    const Graph graph =
        parse(fmt::format(R"(graph @main(%x: i32[3, 74], %i: i64[7], %u: i32[3, 7]) {{
  %v = neg %x : i32[3, 74]
  %s = scatter_add %v, %i, %u {{axis: 1}} : i32[3, 74]
  %b = broadcast %v {{axes: [0, 1]}} : {0}
  return %s, %b
}})",
                          result));
    std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 3);
    for (int64_t t = 0; t < 7; ++t) inputs[1].set_int(t, t * t);
    for (const char* device : {"cpu", "sim:cpu", "sim:sm_90"})
      EXPECT_TRUE(testing::agrees(graph, inputs, Device(device))) << device;
  }
  const Graph scalar = parse(R"(graph @main(%x: i32[74], %i: i64[], %u: i32[]) {
  %v = neg %x : i32[74]
  %s = scatter_add %v, %i, %u {axis: 0} : i32[74]
  return %s, %v
})");
  std::vector<HostTensor> inputs = fuzz::random_inputs(scalar, 3);
  inputs[1].set_int(0, 5);
  for (const char* device : {"cpu", "sim:cpu", "sim:sm_90"})
    EXPECT_TRUE(testing::agrees(scalar, inputs, Device(device))) << device;
}

// A sum on chip that is read alone, before all sums are stored by vectors: the memory beyond the
// sums is set too.
TEST(Placed, OneSumIsReadBeforeTheOthers) {
  const Graph graph = parse(R"(graph @main(%t: i32[12], %i: i32[3, 6], %x: i32[3, 6], %w: i32[1]) {
  %s = scatter_add %t, %i, %x {axis: 0} : i32[12]
  %p = slice %s {starts: [2], limits: [3], strides: [1]} : i32[1]
  %d = dot %p, %w {contract: [0] x [0]} : i32[]
  return %d, %s
})");
  std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 3);
  for (int64_t t = 0; t < 18; ++t) inputs[1].set_int(t, t * 5 % 12);
  for (const char* device : {"cpu", "sim:cpu", "sim:x86-64-v3", "sim:x86-64-v4", "sim:sm_90"})
    EXPECT_TRUE(testing::agrees(graph, inputs, Device(device))) << device;
}

// Terms that read what is updated are read before any of it changes.
TEST(Placed, TermsOfTheUpdatedArgument) {
  const Graph graph = parse(R"(graph @main(%x: f32[60, 37], %i: i64[60]) {
  %y = scatter_add %x, %i, %x {axis: 0} : f32[60, 37]
  return %y updates %x
})");
  std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 3);
  for (int64_t t = 0; t < 60; ++t) inputs[1].set_int(t, (t * 7 + 1) % 60);
  for (const Device& device : {Device("cpu"), Device("sim:cpu")})
    EXPECT_TRUE(same_bits(graph, inputs,
                          testing::run(testing::compile_for(device, graph), device, inputs)));
}

}  // namespace
}  // namespace braze
