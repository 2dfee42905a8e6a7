// The graphs of tests/graphs: each shows one step of the compiler that others seldom need. They run
// on the simulators, which take no time to compile for; cascades and products of windows run on the
// GPU that BRAZE_TEST_DEVICE names.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <numeric>
#include <random>
#include <span>

#include "frontend/autodiff/gradient.h"
#include "ir/code/text.h"
#include "ir/graph/build.h"
#include "ir/graph/sizes.h"
#include "ir/support/text.h"
#include "ir/tile/verify.h"
#include "tests/compiler/run.h"
#include "tests/fuzz/generator.h"
#include "tests/source_path.h"

namespace braze {
namespace {

constexpr std::string_view kSchedule = "// schedule ";

constexpr std::string_view kKernels = "// kernels ", kFloatKernels = "// kernels in f32 ";

/// One graph and, of a line `// schedule DEVICE TEXT`, how its first kernel is made, and where; of
/// a line `// kernels N`, how many there are, and of a line `// kernels in f32 N`, how many if all
/// floats are f32.
struct GraphCase {
  std::string text, device, schedule;
  size_t kernels = 1;
  std::optional<size_t> float_kernels;

  size_t kernels_of(bool floats) const {
    return floats ? float_kernels.value_or(kernels) : kernels;
  }
};

std::vector<GraphCase> cases(const std::string& name) {
  std::ifstream file(test::source_path("tests/graphs/" + name));
  std::vector<GraphCase> out(1);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("// ----")) {
      out.emplace_back();
    } else if (line.starts_with(kSchedule)) {
      const size_t space = line.find(' ', kSchedule.size());
      out.back().device = line.substr(kSchedule.size(), space - kSchedule.size());
      out.back().schedule = line.substr(space + 1);
    } else if (line.starts_with(kFloatKernels)) {
      out.back().float_kernels = std::stoul(line.substr(kFloatKernels.size()));
    } else if (line.starts_with(kKernels)) {
      out.back().kernels = std::stoul(line.substr(kKernels.size()));
    } else {
      out.back().text += line + "\n";
    }
  }
  return out;
}

/// Tile programs as they are made hold to the rules, those too that no simulator looks at.
CompileOptions verifying() {
  CompileOptions options;
  options.observer = [](const CompilePhase& phase) {
    if (phase.stage != "tile") return;
    for (const Diagnostic& finding : verify(parse_tile(phase.text(), "tile")))
      ADD_FAILURE() << finding.to_string() << "\n" << phase.text();
  };
  return options;
}

TEST(Graphs, GiveTheInterpretersValues) {
  const std::vector<GraphCase> all = cases("tilings.braze");
  ASSERT_GE(all.size(), 10u);
  for (const GraphCase& given : all) {
    const Graph graph = parse_graph(given.text, "tilings.braze");
    SCOPED_TRACE(graph.name());
    const std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 1);
    if (given.device.empty()) {
      for (const char* device : {"sim:cpu", "sim:sm_90"})
        EXPECT_TRUE(testing::agrees(graph, inputs, Device(device), verifying())) << device;
      continue;
    }
    const Device device(given.device);
    CompileOptions options = verifying();
    options.schedules[testing::compile_for(device, graph)->launches[0].name] = given.schedule;
    EXPECT_TRUE(testing::agrees(graph, inputs, device, options)) << given.device;
  }
}

// The rules cut the depth of a product into slices. The shortest that they cut is one slice.
TEST(Graphs, ProductsMayBeAsDeepAsASlice) {
  for (const auto& [dtype, attributes] : {std::pair{"bf16", ""}, {"f32", ", tf32: true"}}) {
    const std::string text =
        fmt::format(R"(braze 1 graph
graph @shallow(%x: {dtype}[512, 32], %w: {dtype}[32, 512]) {{
  %y = dot %x, %w {{contract: [1] x [0]{attributes}}} : {dtype}[512, 512]
  return %y
}})",
                    fmt::arg("dtype", dtype), fmt::arg("attributes", attributes));
    const Graph graph = parse_graph(text, "shallow");
    const std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 1);
    for (const char* device : {"sim:sm_80", "sim:sm_90"})
      EXPECT_TRUE(testing::agrees(graph, inputs, Device(device), verifying())) << device << dtype;
  }
}

// No kernel touches the memory of an empty tensor.
TEST(Graphs, SizesMayBeZero) {
  const std::vector<GraphCase> all = cases("empty.braze");
  ASSERT_GE(all.size(), 6u);
  for (const GraphCase& given : all) {
    const Graph graph = parse_graph(given.text, "empty.braze");
    SCOPED_TRACE(graph.name());
    Sizes sizes;
    for (const Expr& symbol : graph.symbols()) sizes.set(symbol.symbol_name(), 0);
    std::vector<HostTensor> inputs;
    for (const NodeId id : graph.inputs())
      inputs.emplace_back(graph[id].type.dtype, sizes(graph[id].type.shape));
    for (const char* device : {"sim:cpu", "sim:x86-64-v3", "sim:sm_90", "sim:sm_80"})
      EXPECT_TRUE(testing::agrees(graph, inputs, Device(device), verifying())) << device;
  }
}

// However short they are here.
void expect_cascades(const Device& device, bool floats = false) {
  const std::vector<GraphCase> all = cases("cascades.braze");
  ASSERT_GE(all.size(), 10u);
  CompileOptions options = verifying();
  options.by_cost = false;
  for (const GraphCase& given : all) {
    const Graph graph =
        parse_graph(floats ? testing::with_floats(given.text) : given.text, "cascades.braze");
    SCOPED_TRACE(graph.name());
    const std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 1);
    const auto program = testing::compile_for(device, graph, options);
    EXPECT_EQ(program->launches.size(), given.kernels_of(floats));
    const std::vector<HostTensor> got = testing::run(program, device, inputs);
    const CheckResult result = testing::check(graph, inputs, got);
    EXPECT_TRUE(result.ok) << result.summary();
    if (device.target().simulated) continue;  // the simulator always takes one order
    const std::vector<HostTensor> again = testing::run(program, device, inputs);
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_EQ(std::memcmp(got[i].data(), again[i].data(), got[i].size_bytes()), 0)
          << "output " << i << " has other bits when it is computed again";
  }
}

TEST(Graphs, CascadesOfDotsAreOneKernel) { expect_cascades(testing::gpu_or("sim:sm_90")); }

TEST(Graphs, CascadesOfDotsAreOneKernelOfWarps) { expect_cascades(Device("sim:sm_80")); }

TEST(Graphs, CascadesOfDotsInFloatsAreOneKernel) {
  expect_cascades(testing::gpu_or("sim:sm_90"), /*floats=*/true);
}

TEST(Graphs, CascadesOfDotsFollowTheCost) {
  for (const GraphCase& given : cases("cascades.braze")) {
    const Graph graph = parse_graph(given.text, "cascades.braze");
    SCOPED_TRACE(graph.name());
    EXPECT_TRUE(
        testing::agrees(graph, fuzz::random_inputs(graph, 1), Device("sim:cpu"), verifying()));
  }
}

// On CPUs most of them are one kernel, in f32 all with many rows.
TEST(Graphs, CascadesOfDotsOnCpus) {
  CompileOptions options = verifying();
  options.by_cost = false;
  size_t ones = 0;
  for (const GraphCase& given : cases("cascades.braze"))
    for (const bool wide : {false, true}) {
      if (given.kernels > 1) continue;
      const std::string text = wide ? testing::with_floats(given.text) : given.text;
      const Graph graph = parse_graph(text, "cascades.braze");
      SCOPED_TRACE(text);
      const std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 1);
      for (const char* device : {"cpu", "sim:x86-64-v3"})
        EXPECT_TRUE(testing::agrees(graph, inputs, Device(device), options)) << device;
      const auto program = testing::compile_for(Device("sim:x86-64-v4"), graph, options);
      ones += program->launches.size() == 1;
    }
  EXPECT_GE(ones, 16u);
}

/// Attention over `n` rows and keys of `heads` heads of width 64 in f32, and what its scores go
/// through before the softmax.
Graph attention(const std::string& spelling, int64_t heads, int64_t n) {
  const std::string rows = fmt::format("[{}, {}]", heads, n);
  const std::string all = fmt::format("[{}, {}, {}]", heads, n, n);
  const std::string vectors = fmt::format("f32[{}, {}, 64]", heads, n);
  std::string input, mask, scores = "%t";
  if (spelling == "plain") {
    scores = "%u";
  } else if (spelling == "bias") {
    input = ", %b: f32" + all;
    mask = "%t = add %u, %b : f32" + all;
  } else {
    if (spelling == "causal")
      mask = fmt::format(
          "%row = iota {{axis: 1}} : i32{0}\n %key = iota {{axis: 2}} : i32{0}\n"
          "%seen = le %key, %row : bool{0}\n",
          all);
    if (spelling == "padding") {
      input = fmt::format(", %keep: bool[{}]", n);
      mask = fmt::format("%seen = broadcast %keep {{axes: [2]}} : bool{}\n", all);
    }
    if (spelling == "documents") {
      input = fmt::format(", %numbers: i32[{}]", n);
      mask = fmt::format(
          "%row = broadcast %numbers {{axes: [1]}} : i32{0}\n"
          "%key = broadcast %numbers {{axes: [2]}} : i32{0}\n %seen = eq %row, %key : bool{0}\n",
          all);
    }
    mask += "%low = constant -inf : f32[]\n %t = select %seen, %u, %low : f32" + all;
  }
  return parse_graph(fmt::format(R"(braze 1 graph
graph @attention(%q: {0}, %k: {0}, %v: {0}{3}) {{
  %s = dot %q, %k {{batch: [0] x [0], contract: [2] x [2]}} : f32{2}
  %c = constant 0.125 : f32[]
  %u = mul %s, %c : f32{2}
  {4}
  %m = reduce max {5} {{axes: [2]}} : f32{1}
  %mb = broadcast %m {{axes: [0, 1]}} : f32{2}
  %d = sub {5}, %mb : f32{2}
  %e = exp %d : f32{2}
  %l = reduce sum %e {{axes: [2]}} : f32{1}
  %lb = broadcast %l {{axes: [0, 1]}} : f32{2}
  %p = div %e, %lb : f32{2}
  %y = dot %p, %v {{batch: [0] x [0], contract: [2] x [1]}} : {0}
  return %y
}})",
                                 vectors, rows, all, input, mask, scores),
                     "attention");
}

constexpr const char* kSpellings[] = {"plain", "causal", "padding", "documents", "bias"};

// By their prices: whatever the scores go through, the walk is estimated to be faster than storing
// them.
TEST(Graphs, CascadesOfDotsOnCpusFollowTheCost) {
  struct {
    int64_t heads, n;
  } const kSizes[] = {{12, 1024}, {2, 4096}};
  for (const char* spelling : kSpellings)
    for (const auto& [heads, n] : kSizes) {
      const Program program =
          compile(attention(spelling, heads, n), find_target("sim:x86-64-v4").value());
      EXPECT_EQ(program.launches.size(), 1u) << spelling << " " << n;
    }
}

// Sums of a row with an infinity are infinite or NaN beyond the end of an axis, too, where other
// factors are zeros. None of that reaches another dot.
TEST(Graphs, InfiniteRowsOfChainsStayInfinite) {
  for (const char* dtype : {"f32", "bf16"}) {
    const Graph graph = parse_graph(fmt::format(R"(braze 1 graph
graph @chain(%x: {0}[100, 64], %w: {0}[64, 70], %v: {0}[70, 40]) {{
  %d = dot %x, %w {{contract: [1] x [0]}} : {0}[100, 70]
  %y = dot %d, %v {{contract: [1] x [0]}} : {0}[100, 40]
  return %y
}})",
                                                dtype),
                                    "chain");
    std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 1);
    for (HostTensor& input : inputs)
      for (int64_t i = 0; i < input.numel(); ++i)
        input.set_double(i, static_cast<double>(i % 7 + 1) / 8);
    inputs[0].set_double(3 * 64 + 5, std::numeric_limits<double>::infinity());
    CompileOptions options = verifying();
    options.by_cost = false;
    for (const char* name : {"sim:sm_90", "sim:sm_80"}) {
      const Device device(name);
      const auto program = testing::compile_for(device, graph, options);
      const HostTensor y = testing::run(program, device, inputs)[0];
      for (int64_t i = 0; i < y.numel(); ++i)
        ASSERT_EQ(std::isinf(y.get_double(i)), i / 40 == 3) << dtype << name << i;
    }
  }
}

// On GPUs too, in f32.
TEST(Graphs, CascadesOfDotsOnGpusFollowTheCost) {
  for (const char* target : {"sim:sm_90", "sim:sm_80"})
    for (const char* spelling : kSpellings) {
      const Program program = compile(attention(spelling, 12, 1024), find_target(target).value());
      EXPECT_EQ(program.launches.size(), 1u) << spelling << " on " << target;
    }
}

// In bf16 with many queries and few, with fewer keys than a head is wide, and with heads whose
// columns are no whole slabs of 64.
TEST(Graphs, AttentionOfAnyLengthsFollowsTheCost) {
  struct {
    int64_t heads, queries, keys, width;
  } const kSizes[] = {{64, 2048, 2048, 64},  {128, 4, 8192, 128}, {50, 3744, 48, 64},
                      {90, 6408, 96, 112},   {25, 5760, 76, 128}, {32, 4672, 4672, 160},
                      {16, 1024, 1024, 200}, {8, 4, 32768, 128}};
  for (const auto& [heads, queries, keys, width] : kSizes) {
    const std::string rows = fmt::format("[{}, {}]", heads, queries),
                      all = fmt::format("[{}, {}, {}]", heads, queries, keys),
                      result = fmt::format("bf16[{}, {}, {}]", heads, queries, width),
                      walked = fmt::format("bf16[{}, {}, {}]", heads, keys, width);
    const Graph graph =
        parse_graph(fmt::format(R"(braze 1 graph
graph @attention(%q: {0}, %k: {1}, %v: {1}) {{
  %s = dot %q, %k {{batch: [0] x [0], contract: [2] x [2]}} : f32{3}
  %c = constant 0.125 : f32[]
  %t = mul %s, %c : f32{3}
  %m = reduce max %t {{axes: [2]}} : f32{2}
  %mb = broadcast %m {{axes: [0, 1]}} : f32{3}
  %d = sub %t, %mb : f32{3}
  %e = exp %d : f32{3}
  %l = reduce sum %e {{axes: [2]}} : f32{2}
  %lb = broadcast %l {{axes: [0, 1]}} : f32{3}
  %p = div %e, %lb : f32{3}
  %h = convert %p : bf16{3}
  %y = dot %h, %v {{batch: [0] x [0], contract: [2] x [1]}} : {0}
  %z = reshape %y : {4}
  return %z
}})",
                                result, walked, rows, all,
                                fmt::format("bf16[1, {}, {}, {}]", heads, queries, width)),
                    "attention");
    const Program program = compile(graph, find_target("sim:sm_90").value());
    EXPECT_EQ(program.launches.size(), 1u) << to_text(graph);
  }
}

// What is moved, and what is kept for a while, is proportional to the number of rows and keys, but
// for the lists of turns of documents, which have an integer for some hundred scores. The bias is
// an input, and each of its elements is read once.
TEST(Graphs, CascadesOfDotsOnCpusMoveNoScores) {
  const auto bytes = [](const char* spelling, int64_t n) {
    const Program program =
        compile(attention(spelling, 12, n), find_target("sim:x86-64-v4").value());
    int64_t out = program.arena_bytes.as_constant().value();
    for (const Launch& launch : program.launches)
      out += (launch.bytes_read + launch.bytes_written).as_constant().value();
    return spelling == std::string_view("bias") ? out - 12 * n * n * 4 : out;
  };
  for (const char* spelling : kSpellings) {
    const int64_t half = bytes(spelling, 8192), whole = bytes(spelling, 16384);
    EXPECT_GT(half, 0) << spelling;
    EXPECT_LT(whole, half * 21 / 10) << spelling;
  }
}

// The gradients in f32 are right; where the rows of all walks come first, they are as many kernels
// as on a GPU.
TEST(Graphs, GradientsOfCascadesOnCpus) {
  CompileOptions options = verifying();
  options.by_cost = false;
  size_t all = 0, as_many = 0;
  for (const GraphCase& given : cases("cascades.braze")) {
    if (given.text.find(" as \"dq\"") == std::string::npos) continue;
    std::string text(given.text);
    for (const std::string half : {"bf16[", "f16["})
      for (size_t at = 0; (at = text.find(half)) != std::string::npos;)
        text.replace(at, half.size(), "f32[");
    const Graph graph = parse_graph(text, "cascades.braze");
    SCOPED_TRACE(text);
    const std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 1);
    for (const char* device : {"cpu", "sim:x86-64-v3"})
      EXPECT_TRUE(testing::agrees(graph, inputs, Device(device), options)) << device;
    const auto program = testing::compile_for(Device("sim:x86-64-v4"), graph, options);
    as_many += program->launches.size() == given.kernels;
    ++all;
  }
  EXPECT_GE(all, 8u);
  EXPECT_GE(as_many, 1u);
}

/// Attention of n queries and m keys, causal where both are as many, with a direction `g` of the
/// result for gradients.
Graph attention(int64_t n, int64_t m) {
  return parse_graph(fmt::format(R"(braze 1 graph
graph @attention(%q: bf16[2, {n}, 32], %k: bf16[2, {m}, 32], %v: bf16[2, {m}, 32], %g: bf16[2, {n}, 32]) {{
  %s = dot %q, %k {{batch: [0] x [0], contract: [2] x [2]}} : f32[2, {n}, {m}]
  %c = constant 0.17677669 : f32[]
  %t = mul %s, %c : f32[2, {n}, {m}]
  %i = iota {{axis: 1}} : i32[2, {n}, {m}]
  %j = iota {{axis: 2}} : i32[2, {n}, {m}]
  %o = constant {o} : i32[]
  %r = add %i, %o : i32[2, {n}, {m}]
  %seen = le %j, %r : bool[2, {n}, {m}]
  %low = constant -inf : f32[]
  %w = select %seen, %t, %low : f32[2, {n}, {m}]
  %most = reduce max %w {{axes: [2]}} : f32[2, {n}]
  %mb = broadcast %most {{axes: [0, 1]}} : f32[2, {n}, {m}]
  %d = sub %w, %mb : f32[2, {n}, {m}]
  %e = exp %d : f32[2, {n}, {m}]
  %l = reduce sum %e {{axes: [2]}} : f32[2, {n}]
  %lb = broadcast %l {{axes: [0, 1]}} : f32[2, {n}, {m}]
  %p = div %e, %lb : f32[2, {n}, {m}]
  %h = convert %p : bf16[2, {n}, {m}]
  %y = dot %h, %v {{batch: [0] x [0], contract: [2] x [1]}} : bf16[2, {n}, 32]
  return %y as "y"
}})",
                                 fmt::arg("n", n), fmt::arg("m", m), fmt::arg("o", n == m ? 0 : m)),
                     "attention");
}

/// The gradients of sum(value * g) for the first three inputs.
std::vector<NodeId> gradients_of(Graph& graph, NodeId value) {
  const NodeId product = build::map(graph, ElementwiseOp::mul, {value, graph.inputs()[3]});
  const NodeId loss = build::reduce(graph, Monoid::Sum, product, {0, 1, 2});
  const std::vector<NodeId> inputs = graph.inputs();
  return differentiate(graph, loss, std::span(inputs).first(3));
}

void expect_gradients(Graph graph, const std::vector<NodeId>& gradients) {
  std::vector<GraphOutput> outputs;
  for (const NodeId id : gradients)
    outputs.push_back({id, "d" + std::to_string(outputs.size()), {}});
  graph.set_outputs(std::move(outputs));
  CompileOptions options = verifying();
  options.by_cost = false;
  const std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 1);
  EXPECT_TRUE(testing::agrees(graph, inputs, testing::gpu_or("sim:sm_90"), options));
  EXPECT_TRUE(testing::agrees(graph, inputs, Device("cpu"), options));
}

TEST(Graphs, GradientsOfCascadesWithFewKeys) {
  for (const int64_t keys : {0, 1, 2}) {
    SCOPED_TRACE(keys);
    Graph graph = attention(140, keys);
    const auto gradients = gradients_of(graph, graph.outputs()[0].node);
    expect_gradients(std::move(graph), gradients);
  }
}

// In as many kernels as it takes.
TEST(Graphs, SecondDerivativesOfCascades) {
  for (const int64_t keys : {70, 100}) {
    SCOPED_TRACE(keys);
    Graph graph = attention(70, keys);
    const auto first = gradients_of(graph, graph.outputs()[0].node);
    const auto second = gradients_of(graph, first[0]);
    expect_gradients(std::move(graph), second);
  }
}

// A product of a matrix and what windows of images show: image and tap i are `stride * o +
// dilation * i - low`.
struct Windows {
  int64_t images, height, width, channels, results, taps_y, taps_x;
  int64_t stride = 1, dilation = 1, low = 1, high = 1;

  std::string text() const {
    const auto results_along = [&](int64_t extent, int64_t taps) {
      return (extent + low + high - dilation * (taps - 1) - 1) / stride + 1;
    };
    const int64_t oh = results_along(height, taps_y), ow = results_along(width, taps_x);
    return fmt::format(R"(braze 1 graph
graph @windows(%x: bf16[{n}, {h}, {w}, {c}], %k: bf16[{r}, {s}, {c}, {f}], %b: f32[{f}]) {{
  %0 = constant 0 : bf16[]
  %1 = broadcast %x {{axes: [0, 1, 2, 5]}} : bf16[{n}, {h}, {w}, {r}, {s}, {c}]
  %2 = windows %1, %0 {{axes: [1, 2], taps: [3, 4], strides: [{stride}, {stride}], dilations: [{dilation}, {dilation}], gaps: [1, 1], low: [{low}, {low}]}} : bf16[{n}, {oh}, {ow}, {r}, {s}, {c}]
  %3 = dot %2, %k {{contract: [3, 4, 5] x [0, 1, 2]}} : f32[{n}, {oh}, {ow}, {f}]
  %4 = broadcast %b {{axes: [3]}} : f32[{n}, {oh}, {ow}, {f}]
  %5 = add %3, %4 : f32[{n}, {oh}, {ow}, {f}]
  %6 = relu %5 : f32[{n}, {oh}, {ow}, {f}]
  %7 = convert %6 : bf16[{n}, {oh}, {ow}, {f}]
  return %7 as "y"
}})",
                       fmt::arg("n", images), fmt::arg("h", height), fmt::arg("w", width),
                       fmt::arg("c", channels), fmt::arg("f", results), fmt::arg("r", taps_y),
                       fmt::arg("s", taps_x), fmt::arg("stride", stride),
                       fmt::arg("dilation", dilation), fmt::arg("low", low), fmt::arg("oh", oh),
                       fmt::arg("ow", ow));
  }
};

void expect_asynchronous(const Windows& windows) {
  const Device device = testing::gpu_or("sim:sm_90");
  CompileOptions options = verifying();
  options.by_cost = false;
  const Graph graph = parse_graph(windows.text(), "windows");
  SCOPED_TRACE(windows.text());
  const auto program = testing::compile_for(device, graph, options);
  ASSERT_EQ(program->launches.size(), 1u);
  EXPECT_NE(program->launches[0].schedule.find("unit"), std::string::npos)
      << program->launches[0].schedule;
  const std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 1);
  EXPECT_TRUE(testing::agrees(graph, inputs, device, options));
}

TEST(Graphs, ProductsOfWindowsAreOneKernel) {
  // Boxes that fill images, and boxes that reach beyond them along one axis, two and three.
  expect_asynchronous({8, 8, 8, 64, 64, 3, 3});
  expect_asynchronous({3, 14, 14, 64, 128, 3, 3});
  expect_asynchronous({5, 13, 7, 72, 72, 3, 3});
  // Every second pixel, an even number of them; one tap of each four.
  expect_asynchronous({16, 16, 16, 64, 64, 3, 3, 2});
  expect_asynchronous({32, 14, 14, 64, 192, 1, 1, 2, 1, 0, 0});
  // One image, so that rows are pixels.
  expect_asynchronous({1, 40, 48, 64, 64, 3, 3});
}

TEST(Graphs, ProductsOfRandomWindowsAreOneKernel) {
  std::mt19937_64 random(7);
  const auto between = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  for (int i = 0; i < 4; ++i) {
    Windows w{};
    w.stride = between(1, 2);
    w.dilation = between(1, 3);
    w.taps_y = between(1, 4);
    w.taps_x = between(1, 4);
    w.low = between(0, 2);
    w.high = between(0, 2);
    const int64_t span = w.dilation * 3 + 1;
    w.height = between(span, 20) / w.stride * w.stride + w.stride;
    w.width = between(span, 20) / w.stride * w.stride + w.stride;
    // The channels of two neighbours lie side by side, so those of one fill whole turns.
    w.channels = w.stride > 1 ? 64 : between(4, 12) * 8;
    w.results = between(4, 24) * 8;
    // So that the product is large enough for copies ahead.
    const int64_t work = w.height * w.width * w.channels * w.results * w.taps_y * w.taps_x;
    w.images = (int64_t{1} << 24) * w.stride * w.stride * 2 / work + 1;
    expect_asynchronous(w);
  }
}

// A convolution of images with one to three axes whose channels come first.
struct ChannelsFirst {
  std::vector<int64_t> extents;
  int64_t images, channels, results, taps = 3, stride = 1, low = 1;
  std::string dtype = "bf16";

  std::string text() const {
    const auto rank = std::ssize(extents);
    std::vector<int64_t> shown, all_taps(extents.size(), taps);
    for (const int64_t extent : extents) shown.push_back((extent + 2 * low - taps) / stride + 1);
    const auto list = [](const std::vector<int64_t>& numbers) {
      return join(numbers, ", ", [](int64_t n) { return std::to_string(n); });
    };
    const auto range = [&](int64_t first, int64_t count) {
      std::vector<int64_t> out(static_cast<size_t>(count));
      std::iota(out.begin(), out.end(), first);
      return list(out);
    };
    const auto same = [&](int64_t n) { return list(std::vector<int64_t>(extents.size(), n)); };
    return fmt::format(
        R"(braze 1 graph
graph @channels_first(%x: {t}[{n}, {c}, {in}], %k: {t}[{f}, {c}, {taps}]) {{
  %0 = constant 0 : {t}[]
  %1 = broadcast %x {{axes: [{axes}]}} : {t}[{n}, {c}, {in}, {taps}]
  %2 = windows %1, %0 {{axes: [{windowed}], taps: [{tap_axes}], strides: [{strides}], dilations: [{ones}], gaps: [{ones}], low: [{lows}]}} : {t}[{n}, {c}, {out}, {taps}]
  %y = dot %2, %k {{contract: [1, {tap_axes}] x [1, {windowed}]{tf32}}} : {t}[{n}, {out}, {f}]
  %4 = transpose %y {{permutation: [0, {last}, {places}]}} : {t}[{n}, {f}, {out}]
  %5 = relu %4 : {t}[{n}, {f}, {out}]
  return %5 as "y"
}})",
        fmt::arg("t", dtype), fmt::arg("n", images), fmt::arg("c", channels),
        fmt::arg("f", results), fmt::arg("in", list(extents)), fmt::arg("out", list(shown)),
        fmt::arg("taps", list(all_taps)), fmt::arg("axes", range(0, rank + 2)),
        fmt::arg("windowed", range(2, rank)), fmt::arg("tap_axes", range(2 + rank, rank)),
        fmt::arg("strides", same(stride)), fmt::arg("ones", same(1)), fmt::arg("lows", same(low)),
        fmt::arg("last", rank + 1), fmt::arg("places", range(1, rank)),
        fmt::arg("tf32", dtype == "f32" ? ", tf32: true" : ""));
  }
};

// Matrix units cannot read rows of pixels under windows, so the factors are copied with the
// channels innermost, and the product gets both of them by copies to the chip.
TEST(Graphs, FactorsAreCopiedToTheOrdersOfMatrixUnits) {
  const ChannelsFirst cases[] = {
      {{8, 8}, 8, 64, 64},
      {{13, 7}, 5, 72, 72},
      {{16, 16}, 16, 64, 64, 3, 2},
      {{40, 1}, 64, 64, 72},
      {{28, 28}, 16, 64, 256, 2, 2, 0},
      {{120}, 16, 64, 64, 4},
      {{6, 5, 4}, 8, 64, 64, 2},
      {{8, 8}, 16, 32, 64},
      {{8, 8}, 16, 32, 64, 3, 1, 1, "f32"},
  };
  for (const char* name : {"sim:sm_90", "sim:sm_80"})
    for (const ChannelsFirst& conv : cases) {
      const Device device = testing::gpu_or(name);
      SCOPED_TRACE(fmt::format("{}\n{}", name, conv.text()));
      const Graph graph = parse_graph(conv.text(), "convolution");
      const CompileOptions options = verifying();
      const auto program = testing::compile_for(device, graph, options);
      const auto product = std::ranges::find_if(program->launches, [](const Launch& launch) {
        return launch.schedule.find("unit %") != std::string::npos;
      });
      ASSERT_NE(product, program->launches.end());
      const std::string& schedule = product->schedule;
      EXPECT_EQ(schedule.find("fma"), std::string::npos) << schedule;
      EXPECT_NE(schedule.find("stage"), schedule.rfind("stage")) << schedule;
      const std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 1);
      EXPECT_TRUE(testing::agrees(graph, inputs, device, options));
    }
}

// One slice has all that is summed along the innermost axis: of one axis, and of several.
TEST(Graphs, SlicesOfWholeSums) {
  const Device device = testing::gpu_or("sim:sm_80");
  for (const auto& [shape, contract] :
       {std::pair("512, 32", "[1] x [1]"), std::pair("256, 9, 32", "[1, 2] x [1, 2]")}) {
    const Graph graph = parse_graph(fmt::format(R"(braze 1 graph
graph @slices(%x: bf16[{0}], %w: bf16[{0}]) {{
  %f = dot %x, %w {{contract: {1}}} : f32[{2}, {2}]
  return %f as "y"
}})",
                                                shape, contract, std::string(shape, 3)),
                                    "slices");
    const std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 1);
    EXPECT_TRUE(testing::agrees(graph, inputs, device, verifying()));
  }
}

// A product whose results are written in two orders: one of them goes through buffers on the chip,
// for which the slots of factors leave room.
TEST(Graphs, ResultsInTwoOrders) {
  const Device device = testing::gpu_or("sim:sm_90");
  const Graph graph = parse_graph(R"(braze 1 graph
graph @both(%x: bf16[32, 64, 64], %w: bf16[3, 64, 64]) {
  %0 = constant 0 : bf16[]
  %1 = broadcast %x {axes: [0, 1, 3]} : bf16[32, 64, 3, 64]
  %2 = windows %1, %0 {axes: [1], taps: [2], strides: [1], dilations: [1], gaps: [1], low: [1]} : bf16[32, 64, 3, 64]
  %3 = dot %2, %w {contract: [2, 3] x [0, 1]} : bf16[32, 64, 64]
  %4 = transpose %3 {permutation: [0, 2, 1]} : bf16[32, 64, 64]
  %5 = relu %3 : bf16[32, 64, 64]
  return %4 as "y", %5 as "z"
})",
                                  "both");
  CompileOptions options = verifying();
  options.by_cost = false;
  const std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 1);
  EXPECT_TRUE(testing::agrees(graph, inputs, device, options));
}

// What windows of images show and a matrix of the same places, summed over all places: several
// taps, each with sums of its own.
struct SumOfWindows {
  int64_t images, height, width, channels, results, taps;
  int64_t stride = 1, low = 1;

  std::string text() const {
    return fmt::format(R"(braze 1 graph
graph @sums(%x: bf16[{n}, {h}, {w}, {c}], %g: bf16[{n}, {oh}, {ow}, {f}]) {{
  %0 = constant 0 : bf16[]
  %1 = broadcast %x {{axes: [0, 1, 2, 5]}} : bf16[{n}, {h}, {w}, {r}, {r}, {c}]
  %2 = windows %1, %0 {{axes: [1, 2], taps: [3, 4], strides: [{stride}, {stride}], dilations: [1, 1], gaps: [1, 1], low: [{low}, {low}]}} : bf16[{n}, {oh}, {ow}, {r}, {r}, {c}]
  %3 = dot %2, %g {{contract: [0, 1, 2] x [0, 1, 2]}} : bf16[{r}, {r}, {c}, {f}]
  return %3 as "y"
}})",
                       fmt::arg("n", images), fmt::arg("h", height), fmt::arg("w", width),
                       fmt::arg("c", channels), fmt::arg("f", results), fmt::arg("r", taps),
                       fmt::arg("stride", stride), fmt::arg("low", low),
                       fmt::arg("oh", height / stride), fmt::arg("ow", width / stride));
  }
};

TEST(Graphs, SumsOverWindowsReadThemInPlace) {
  const Device device("sim:sm_90");
  // Boxes of pixels, of images and pixels, and of images alone; every second pixel; sums in parts;
  // places of which no box holds a whole turn; rows that one group has alone, and those that do not
  // fill half of it.
  const std::pair<SumOfWindows, bool> cases[] = {
      {{16, 8, 8, 128, 64, 3}, true},       {{16, 12, 4, 72, 64, 3}, true},
      {{64, 3, 5, 128, 128, 2}, true},      {{16, 16, 16, 128, 64, 3, 2}, true},
      {{64, 8, 8, 128, 64, 2, 1, 0}, true}, {{20, 7, 7, 128, 64, 3}, false},
      {{16, 8, 8, 64, 64, 3}, true},        {{16, 8, 8, 32, 64, 3}, false},
  };
  for (const auto& [windows, in_place] : cases) {
    const Graph graph = parse_graph(windows.text(), "windows");
    SCOPED_TRACE(windows.text());
    CompileOptions options = verifying();
    options.by_cost = false;
    const auto program = testing::compile_for(device, graph, options);
    const bool composes = std::ranges::any_of(program->launches, [](const Launch& launch) {
      return launch.schedule.find("compose q") != std::string::npos &&
             launch.schedule.find("wgmma") != std::string::npos;
    });
    EXPECT_EQ(composes, in_place);
    const std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 1);
    EXPECT_TRUE(testing::agrees(graph, inputs, device, options));
  }
}

// Matrices of single taps are products of channels, whatever lies innermost in memory: the channels
// or, with a copy before, the pixels. The taps, which are the last axes of the result, are no
// columns.
TEST(Graphs, SumsOverWindowsInOtherOrders) {
  const Device device("sim:sm_90");
  for (const bool channels_last : {true, false}) {
    const std::string shape = channels_last ? "16, 8, 8, 64" : "16, 64, 8, 8";
    const std::string to_first = channels_last ? "[0, 3, 1, 2]" : "[0, 1, 2, 3]";
    const std::string to_rows = channels_last ? "[3, 0, 1, 2]" : "[1, 0, 2, 3]";
    const Graph graph = parse_graph(fmt::format(R"(braze 1 graph
graph @sums(%x: bf16[{0}], %g: bf16[{0}]) {{
  %0 = constant 0 : bf16[]
  %1 = transpose %x {{permutation: {1}}} : bf16[16, 64, 8, 8]
  %2 = broadcast %1 {{axes: [0, 1, 4, 5]}} : bf16[16, 64, 3, 3, 8, 8]
  %3 = windows %2, %0 {{axes: [4, 5], taps: [2, 3], strides: [1, 1], dilations: [1, 1], gaps: [1, 1], low: [1, 1]}} : bf16[16, 64, 3, 3, 8, 8]
  %4 = transpose %g {{permutation: {2}}} : bf16[64, 16, 8, 8]
  %5 = dot %4, %3 {{contract: [1, 2, 3] x [0, 4, 5]}} : bf16[64, 64, 3, 3]
  return %5 as "y"
}})",
                                                shape, to_first, to_rows),
                                    "sums");
    SCOPED_TRACE(shape);
    const CompileOptions options = verifying();
    const auto program = testing::compile_for(device, graph, options);
    EXPECT_TRUE(std::ranges::any_of(program->launches, [](const Launch& launch) {
      return launch.schedule.find("wgmma") != std::string::npos;
    }));
    const std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 1);
    EXPECT_TRUE(testing::agrees(graph, inputs, device, options));
  }
}

// Integers of each row are compared with the number of the column, whatever lies beyond 32 bits.
TEST(Graphs, IntegersAreComparedWithIndices) {
  for (const DType dtype : {DType::I64, DType::I32}) {
    const Shape rows({12}), all({12, 300});
    Graph graph("compared");
    const NodeId x = build::input(graph, "x", {dtype, rows});
    const NodeId spread = build::broadcast(graph, x, all, {0});
    const NodeId column = build::iota(graph, {dtype, all}, 1);
    const NodeId later =
        build::map(graph, ElementwiseOp::add, {column, build::scalar(graph, dtype, 7)});
    std::vector<GraphOutput> outputs;
    for (const ElementwiseOp op : {ElementwiseOp::eq, ElementwiseOp::ne, ElementwiseOp::lt,
                                   ElementwiseOp::le, ElementwiseOp::gt, ElementwiseOp::ge}) {
      const std::string name = "y" + std::to_string(outputs.size());
      outputs.push_back({build::map(graph, op, {spread, column}), name, {}});
      outputs.push_back({build::map(graph, op, {later, spread}), name + "_later", {}});
    }
    graph.set_outputs(std::move(outputs));
    HostTensor values(dtype, {12});
    const int64_t least = dtype == DType::I64 ? INT64_MIN : INT32_MIN;
    const int64_t most = dtype == DType::I64 ? INT64_MAX : INT32_MAX;
    const int64_t numbers[] = {least, least + 3, -1,       0,    5,         299,
                               300,   306,       most - 3, most, INT32_MAX, INT32_MIN};
    for (int64_t i = 0; i < 12; ++i) values.set_int(i, numbers[i]);
    if (dtype == DType::I64) {
      values.set_int(10, (int64_t{1} << 32) + 5);
      values.set_int(11, -(int64_t{1} << 32));
    }
    for (const char* device : {"cpu", "sim:sm_80", "sim:sm_90"})
      EXPECT_TRUE(testing::agrees(graph, std::vector{values}, Device(device)));
  }
}

}  // namespace
}  // namespace braze
