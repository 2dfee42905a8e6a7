// What becomes one kernel, what does not, and why.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "compiler/fusion/inliner.h"
#include "compiler/fusion/partition.h"
#include "compiler/fusion/reasons.h"
#include "compiler/passes/expand.h"
#include "ir/graph/build.h"
#include "ir/support/text.h"
#include "tests/compiler/run.h"
#include "tests/fuzz/generator.h"
#include "tests/source_path.h"

namespace braze {
namespace {

using testing::parse;

// A machine of fixed size, so that decisions do not depend on the host.
const Target& machine() {
  static const Target target = [] {
    Target t = *find_target("x86-64-v3");
    t.cores = 2;
    return t;
  }();
  return target;
}

Partition partition_of(const Graph& graph, const Target& target = machine(),
                       const PartitionOptions& options = {}) {
  const Graph expanded = expand(graph);
  const LoopForms forms(expanded);
  return partition(forms, target, options);
}

size_t kernels(const Graph& graph) { return partition_of(graph).fusions.size(); }

// The number of kernels on a CPU and on GPUs; 0 if it is not the same.
size_t kernels_everywhere(const Graph& graph) {
  const size_t count = kernels(graph);
  for (const char* name : {"x86-64-v4", "sm_80", "sm_90a"})
    if (partition_of(graph, *find_target(name)).fusions.size() != count) return 0;
  return count;
}

size_t edges_with(const Partition& partition, const Code& code) {
  return static_cast<size_t>(std::count_if(partition.edges.begin(), partition.edges.end(),
                                           [&](const EdgeReason& e) { return e.code == &code; }));
}

Graph softmax(int64_t rows, int64_t columns, const std::string& before = "",
              const std::string& after = "") {
  std::string text = R"(graph @main(%x: f32[M, N], %b: f32[N]) {
  %bb = broadcast %b {axes: [1]} : f32[M, N]
  %in = INPUT : f32[M, N]
  %m = reduce max %in {axes: [1]} : f32[M]
  %mb = broadcast %m {axes: [0]} : f32[M, N]
  %c = sub %in, %mb : f32[M, N]
  %e = exp %c : f32[M, N]
  %s = reduce sum %e {axes: [1]} : f32[M]
  %sb = broadcast %s {axes: [0]} : f32[M, N]
  %q = div %e, %sb : f32[M, N]
  %y = OUTPUT : f32[M, N]
  return %y
})";
  const auto put = [&](const std::string& what, const std::string& with) {
    for (size_t at; (at = text.find(what)) != std::string::npos;)
      text.replace(at, what.size(), with);
  };
  put("INPUT", before.empty() ? "add %x, %bb" : before);
  put("OUTPUT", after.empty() ? "mul %q, %bb" : after);
  put("M", std::to_string(rows));
  put("N", std::to_string(columns));
  return parse(text);
}

// --- The inliner's memo --------------------------------------------------------------------------

// Numbers what it is asked to load.
struct LoadCounter {
  using Value = int;
  int loads = 0;
  int load(NodeId, const std::vector<Expr>&, const Conditions&) { return ++loads; }
  int reduced(NodeId, const std::vector<Expr>&, const Conditions&) { return 0; }
  int index(const Expr&, DType) { return 0; }
  int constant(DType, uint64_t) { return 0; }
  int inside(const Conditions&) { return 0; }
  int apply(ElementwiseOp, std::span<const int>, DType) { return 0; }
  Expr as_index(int, const Expr&) { return 0; }
  std::optional<int> cached(NodeId, const std::vector<Expr>&) { return std::nullopt; }
};

// The constant whose hash is `hash`: what hash_combine does to a number can be undone.
Expr constant_of_hash(uint64_t hash) {
  const uint64_t seed = static_cast<uint64_t>(Expr::Kind::Constant);
  uint64_t inverse = 1;  // of the factor, by Newton's steps
  for (int i = 0; i < 6; ++i) inverse *= 2 - 0xd6e8feb86659fd93ull * inverse;
  uint64_t x = hash ^ hash >> 32;
  x *= inverse;
  x ^= x >> 32;
  return Expr(static_cast<int64_t>((x ^ seed) - 0x9e3779b97f4a7c15ull - (seed << 6) - (seed >> 2)));
}

TEST(Inliner, IndicesOfOneHashAreTwoValues) {
  const Graph graph = parse(R"(graph @g(%x: f32[64]) {
  %y = neg %x : f32[64]
  return %y
})");
  const LoopForms forms(graph);
  const std::vector<bool> inside(graph.size(), false);
  LoadCounter sink;
  Inliner<LoadCounter> inliner(forms, inside, sink);
  const Expr i = Expr::index("i", 64), other = constant_of_hash(i.hash());
  ASSERT_EQ(i.hash(), other.hash());
  ASSERT_NE(i, other);
  EXPECT_EQ(inliner.value(NodeId(0), {i}), 1);
  EXPECT_EQ(inliner.value(NodeId(0), {other}), 2);
  EXPECT_EQ(inliner.value(NodeId(0), {i}), 1);
  EXPECT_EQ(inliner.value(NodeId(0), {i}, {{i, 0, 64}}), 3);
  EXPECT_EQ(inliner.value(NodeId(0), {i}, {{other, 0, 64}}), 4);
  EXPECT_EQ(inliner.value(NodeId(0), {i}, {{i, 0, 64}}), 3);
}

// --- What becomes one kernel ---------------------------------------------------------------------

TEST(Fusion, SoftmaxWithNeighboursIsOneKernel) {
  EXPECT_EQ(kernels_everywhere(softmax(512, 1000)), 1u);
  EXPECT_EQ(kernels_everywhere(softmax(64, 10, "tanh %x", "sqrt %q")), 1u);
}

TEST(Fusion, LogSumExpIsOneKernel) {
  EXPECT_EQ(kernels_everywhere(parse(R"(graph @main(%x: f32[512, 777]) {
  %m = reduce max %x {axes: [1]} : f32[512]
  %mb = broadcast %m {axes: [0]} : f32[512, 777]
  %c = sub %x, %mb : f32[512, 777]
  %e = exp %c : f32[512, 777]
  %s = reduce sum %e {axes: [1]} : f32[512]
  %l = log %s : f32[512]
  %y = add %l, %m : f32[512]
  return %y
})")),
            1u);
}

TEST(Fusion, LayerNormFromPrimitiveOpsIsOneKernel) {
  EXPECT_EQ(kernels_everywhere(parse(
                R"(graph @main(%x: f32[512, 768], %r: f32[512, 768], %g: f32[768], %b: f32[768]) {
  %h = add %x, %r : f32[512, 768]
  %n = constant 0.00130208333 : f32[]
  %s = reduce sum %h {axes: [1]} : f32[512]
  %mean = mul %s, %n : f32[512]
  %mb = broadcast %mean {axes: [0]} : f32[512, 768]
  %d = sub %h, %mb : f32[512, 768]
  %d2 = mul %d, %d : f32[512, 768]
  %v = reduce sum %d2 {axes: [1]} : f32[512]
  %var = mul %v, %n : f32[512]
  %eps = constant 1e-05 : f32[]
  %ve = add %var, %eps : f32[512]
  %rs = rsqrt %ve : f32[512]
  %rb = broadcast %rs {axes: [0]} : f32[512, 768]
  %xn = mul %d, %rb : f32[512, 768]
  %gb = broadcast %g {axes: [1]} : f32[512, 768]
  %bb = broadcast %b {axes: [1]} : f32[512, 768]
  %y0 = mul %xn, %gb : f32[512, 768]
  %y = add %y0, %bb : f32[512, 768]
  return %h, %y
})")),
            1u);
}

TEST(Fusion, BiasAndActivationJoinADot) {
  const Graph graph =
      parse(R"(graph @main(%x: f32[128, 256], %w: f32[256, 512], %b: f32[512], %r: f32[128, 512]) {
  %d = dot %x, %w {contract: [1] x [0]} : f32[128, 512]
  %bb = broadcast %b {axes: [1]} : f32[128, 512]
  %s = add %d, %bb : f32[128, 512]
  %a = gelu %s : f32[128, 512]
  %y = add %a, %r : f32[128, 512]
  return %y
})");
  EXPECT_EQ(kernels_everywhere(graph), 1u);
  EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, 1)));
}

// Cascades of two to four reductions over one axis, each using those before it; no known op.
Graph cascade(uint64_t seed) {
  uint64_t state = seed * 2654435761u + 1;
  const auto draw = [&](uint64_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % n;
  };
  Graph graph;
  const Shape full{256, 600};
  NodeId x = build::input(graph, "x", {DType::F32, full});
  NodeId value = x;
  const int reductions = 2 + static_cast<int>(draw(3));
  std::vector<GraphOutput> outputs;
  for (int i = 0; i < reductions; ++i) {
    const Monoid monoid = draw(3) == 0 ? Monoid::Max : draw(2) ? Monoid::Sum : Monoid::Min;
    NodeId row = build::reduce(graph, monoid, value, {1});
    if (monoid == Monoid::Sum)
      row =
          build::map(graph, ElementwiseOp::mul, {row, build::scalar(graph, DType::F32, 1.0 / 600)});
    const NodeId spread = build::broadcast(graph, row, full, {0});
    constexpr ElementwiseOp kJoins[] = {ElementwiseOp::sub, ElementwiseOp::mul, ElementwiseOp::add,
                                        ElementwiseOp::max};
    value = build::map(graph, kJoins[draw(4)], {value, spread});
    constexpr ElementwiseOp kBodies[] = {ElementwiseOp::tanh, ElementwiseOp::abs,
                                         ElementwiseOp::sigmoid, ElementwiseOp::neg,
                                         ElementwiseOp::sin};
    value = build::map(graph, kBodies[draw(5)], {value});
    if (draw(3) == 0) outputs.push_back({row, "row" + std::to_string(i), {}});
  }
  outputs.push_back({value, "y", {}});
  graph.set_outputs(outputs);
  return graph;
}

// No value connects them, but what they read: rows here, columns there.
TEST(Fusion, ReductionsOverTheSameElementsShareAKernel) {
  EXPECT_EQ(kernels_everywhere(parse(R"(symbol n: 1..4096
graph @rows(%x: f32[n, 512]) {
  %s = reduce sum %x {axes: [1]} : f32[n]
  %q = mul %x, %x : f32[n, 512]
  %v = reduce sum %q {axes: [1]} : f32[n]
  %m = reduce max %x {axes: [1]} : f32[n]
  return %s, %v, %m
})")),
            1u);
  EXPECT_EQ(kernels_everywhere(parse(R"(symbol n: 1..4096
graph @columns(%x: f32[n, 512], %g: f32[n, 512]) {
  %p = mul %x, %g : f32[n, 512]
  %dg = reduce sum %p {axes: [0]} : f32[512]
  %db = reduce sum %g {axes: [0]} : f32[512]
  return %dg, %db
})")),
            1u);
  // A GPU walks rows and columns of one matrix together.
  const Graph both = parse(R"(graph @both(%x: f32[8192, 512]) {
  %r = reduce sum %x {axes: [1]} : f32[8192]
  %c = reduce sum %x {axes: [0]} : f32[512]
  return %r, %c
})");
  EXPECT_EQ(partition_of(both, *find_target("x86-64-v4")).fusions.size(), 2u);
  EXPECT_EQ(partition_of(both, *find_target("sm_80")).fusions.size(), 1u);
  EXPECT_EQ(partition_of(both, *find_target("sm_90a")).fusions.size(), 1u);
}

TEST(Fusion, GeneratedCascadesAreOneKernel) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Graph graph = cascade(seed);
    SCOPED_TRACE(to_text(graph));
    EXPECT_EQ(kernels_everywhere(graph), 1u);
    EXPECT_TRUE(seed % 10 != 0 || testing::agrees(graph, fuzz::random_inputs(graph, seed)));
  }
}

TEST(Fusion, MovementCostsNoKernel) {
  EXPECT_EQ(kernels_everywhere(parse(R"(graph @main(%x: f32[64, 128], %y: f32[128, 64]) {
  %t = transpose %x {permutation: [1, 0]} : f32[128, 64]
  %s = slice %t {starts: [2, 0], limits: [128, 64], strides: [2, 1]} : f32[63, 64]
  %u = slice %y {starts: [0, 0], limits: [63, 64], strides: [1, 1]} : f32[63, 64]
  %a = add %s, %u : f32[63, 64]
  %r = reshape %a : f32[4032]
  return %r
})")),
            1u);
}

TEST(Fusion, EveryEdgeHasAReason) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const Graph graph = expand(fuzz::random_graph(seed, {}));
    const LoopForms forms(graph);
    for (const EdgeReason& edge : partition(forms, machine()).edges) ASSERT_NE(edge.code, nullptr);
  }
}

// --- Reasons: tests/fusion has the rest ---------------------------------------------------------

TEST(Reasons, SwitchedOff) {
  const Graph graph = expand(softmax(16, 64));
  const LoopForms forms(graph);
  const Partition apart = partition(forms, machine(), {.fuse = false});
  EXPECT_GT(apart.fusions.size(), 4u);
  EXPECT_GT(edges_with(apart, reasons::kNotAsked), 0u);
  EXPECT_EQ(edges_with(partition(forms, machine()), reasons::kNotAsked), 0u);
}

// What shares a kernel by the rules, and what does not, gives the interpreter's values.
TEST(Reasons, GraphsOfTheRulesGiveTheInterpretersValues) {
  for (const char* name : {"legality", "together"}) {
    std::ifstream file(test::source_path(fmt::format("tests/fusion/{}.braze", name)));
    std::vector<std::string> texts(1);
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("// ----"))
        texts.emplace_back();
      else
        texts.back() += line + "\n";
    }
    ASSERT_GE(texts.size(), 5u);
    for (const std::string& text : texts) {
      if (text.find("// target: sm") != std::string::npos) continue;  // large ones
      const Graph graph = parse_graph(text, name);
      std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 7);
      for (HostTensor& input : inputs)  // indices of rows that exist
        for (int64_t i = 0; is_integer(input.dtype()) && i < input.numel(); ++i)
          input.set_int(i, 5 * i % 8);
      EXPECT_TRUE(testing::agrees(graph, inputs)) << text;
    }
  }
}

// Graphs that were measured slower in one kernel (bench/results/fusion.md) stay apart, and the
// reason has both times.
TEST(Reasons, FactorsForMatrixUnitsStayInMemory) {
  const auto fusion = [](const char* machine, const char* w, const char* axes) {
    const Graph graph =
        testing::parse(fmt::format(R"(graph @main(%x: f32[1024, 512], %w: f32[{}]) {{
  %y = dot %x, %w {{contract: {}, tf32: true}} : f32[1024, 2048]
  return %y
}})",
                                   w, axes));
    std::string text;
    CompileOptions options;
    options.observer = [&](const CompilePhase& phase) {
      if (phase.stage == "fusion") text = phase.text();
    };
    compile(graph, find_target(machine).value(), options);
    return text;
  };
  EXPECT_NE(fusion("sm_90a", "512, 2048", "[1] x [0]").find("packed"), std::string::npos);
  EXPECT_EQ(fusion("sm_90a", "2048, 512", "[1] x [1]").find("packed"), std::string::npos);
  EXPECT_EQ(fusion("sm_80", "512, 2048", "[1] x [0]").find("packed"), std::string::npos);
}

TEST(Reasons, MeasuredSlowerStaysApart) {
  size_t files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(test::source_path("tests/fusion/split"))) {
    if (entry.path().extension() != ".braze") continue;
    SCOPED_TRACE(entry.path().filename().string());
    ++files;
    std::stringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    const Graph graph = parse_graph(text.str(), "graph");
    const Partition apart = partition_of(graph);
    size_t slower = 0;
    for (const EdgeReason& edge : apart.edges) {
      if (edge.code != &reasons::kCost && edge.code != &reasons::kRecomputeCost &&
          edge.code != &reasons::kParallelism)
        continue;
      double split = 0, fused = 0;
      ASSERT_EQ(std::sscanf(edge.detail.c_str(), "apart %lf us, fused %lf us", &split, &fused), 2)
          << edge.detail;
      EXPECT_GT(fused, split);
      ++slower;
    }
    EXPECT_GT(slower, 0u);
    EXPECT_LT(partition_of(graph, machine(), {.by_cost = false}).fusions.size(),
              apart.fusions.size());
  }
  EXPECT_GE(files, 5u);
}

// The rows of a scatter look among all indices, but each update is added in one of them.
TEST(Reasons, UpdatesOfAScatterAreCountedOnce) {
  const Target target = *find_target("sm_90a");
  const Graph graph = parse(R"(graph @main(%u: bf16[4096, 768], %i: i32[4096]) {
  %zero = constant 0 : bf16[]
  %none = broadcast %zero {axes: []} : bf16[32000, 768]
  %y = scatter_add %none, %i, %u {axis: 0} : bf16[32000, 768]
  return %y
})");
  const double in_every_row = 4096.0 * 32000 * 768 / target.flops_per_second;
  EXPECT_LT(partition_of(graph, target).costs.front().seconds, in_every_row);
}

// --- Bodies have bounds
// ---------------------------------------------------------------------------

// Each level reads the one below at two places: the code of one kernel would be 2^60 bodies.
TEST(Bounds, HalvesOfHalvesAreCutIntoKernels) {
  std::string text = "graph @main(%y0: f32[8]) {\n";
  for (int i = 0; i < 60; ++i)
    text += fmt::format(
        "  %c{0} = concat %y{0}, %y{0} {{axis: 0}} : f32[16]\n"
        "  %y{1} = slice %c{0} {{starts: [0], limits: [8], strides: [1]}} : f32[8]\n",
        i, i + 1);
  const Graph graph = testing::parse(text + "  return %y60\n}");
  EXPECT_GT(testing::compile_for("sim:cpu", graph)->launches.size(), 1u);
  EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, 1), "sim:cpu"));
}

// One kernel would be a walk as deep as the graph.
TEST(Bounds, LongChainsAreCutIntoKernels) {
  std::string text = "graph @main(%y0: f32[8], %x: f32[8]) {\n";
  for (int i = 0; i < 10'000; ++i)
    text += fmt::format("  %y{} = add %y{}, %x : f32[8]\n", i + 1, i);
  const Graph graph = testing::parse(text + "  return %y10000\n}");
  EXPECT_GT(testing::compile_for("sim:cpu", graph)->launches.size(), 1u);
  EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, 1), "sim:cpu"));
}

}  // namespace
}  // namespace braze
