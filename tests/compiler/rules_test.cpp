// Which schedules the rules choose, and that what they choose shows in the code.
#include <gtest/gtest.h>

#include <random>

#include "ir/code/dot_layouts.h"
#include "ir/graph/build.h"
#include "ir/support/text.h"
#include "tests/compiler/run.h"
#include "tests/fuzz/generator.h"

namespace braze {
namespace {

using testing::parse;

// The host with caches of a given size: what is "large" must not depend on the machine.
Target host_with_cache(int64_t bytes) {
  Target target = Device("cpu").target();
  target.l3_bytes = bytes;
  return target;
}

// The text of a phase of the compilation of the graph's first kernel.
std::string phase_text(const Graph& graph, const Target& target, std::string_view stage) {
  std::string text;
  CompileOptions options;
  options.observer = [&](const CompilePhase& phase) {
    if (phase.stage == stage && text.empty()) text = phase.text();
  };
  compile(graph, target, options);
  return text;
}

Graph sum_of(const std::string& type) {
  return parse(fmt::format(R"(graph @main(%x: {0}, %y: {0}) {{
  %z = add %x, %y : {0}
  return %z
}})",
                           type));
}

bool streams(const Graph& graph, int64_t cache) {
  return phase_text(graph, host_with_cache(cache), "asm").find("vmovnt") != std::string::npos;
}

TEST(Streaming, ResultsThatNoCacheHoldsBypassIt) {
  for (const char* type : {"f32[64, 256]", "f64[64, 256]", "i32[64, 256]"}) {
    EXPECT_TRUE(streams(sum_of(type), 32 << 10)) << type;
    EXPECT_FALSE(streams(sum_of(type), 16 << 20)) << type;
  }
  // Vectors of 16-bit values are half a register.
  EXPECT_TRUE(streams(sum_of("bf16[64, 256]"), 32 << 10));
  // A line that begins in the row before is not written whole by one store.
  EXPECT_FALSE(streams(parse(R"(graph @main(%x: f32[64, 255], %y: f32[64]) {
  %yb = broadcast %y {axes: [0]} : f32[64, 255]
  %z = add %x, %yb : f32[64, 255]
  return %z
})"),
                       32 << 10));
}

TEST(Streaming, SizesThatMayBeSmallStayInTheCache) {
  const std::string text = "graph @main(%x: f32[n]) {\n  %y = neg %x : f32[n]\n  return %y\n}";
  EXPECT_FALSE(streams(parse("symbol n: 1..1048576\n" + text), 32 << 10));
  EXPECT_TRUE(streams(parse("symbol n: 65536..1048576\n" + text), 32 << 10));
}

TEST(Streaming, AnUpdateInPlaceIsWrittenWhereItWasRead) {
  const Graph graph = parse(R"(graph @main(%x: f32[16384]) {
  %y = neg %x : f32[16384]
  return %y updates %x
})");
  EXPECT_FALSE(streams(graph, 32 << 10));
}

TEST(Streaming, ChangesNoResult) {
  const Graph graph = sum_of("f32[33, 257]");
  const std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 1);
  const auto program = std::make_shared<const Program>(compile(graph, host_with_cache(4096)));
  EXPECT_TRUE(testing::check(graph, inputs, testing::run(program, "cpu", inputs)).ok);
}

// Rows that are read twice, beside a vector that begins elsewhere.
Graph scaled_rows(const std::string& dtype, const std::string& rows, const std::string& length) {
  return parse(fmt::format(R"({3}graph @main(%x: {0}[{1}, {2}], %w: {0}[{2}]) {{
  %m = reduce max %x {{axes: [1]}} : {0}[{1}]
  %mb = broadcast %m {{axes: [0]}} : {0}[{1}, {2}]
  %c = sub %x, %mb : {0}[{1}, {2}]
  %s = reduce sum %c {{axes: [1]}} : {0}[{1}]
  %sb = broadcast %s {{axes: [0]}} : {0}[{1}, {2}]
  %d = div %c, %sb : {0}[{1}, {2}]
  %wb = broadcast %w {{axes: [1]}} : {0}[{1}, {2}]
  %y = mul %d, %wb : {0}[{1}, {2}]
  %at = argmax %x {{axis: 1}} : i64[{1}]
  return %y, %at
}})",
                           dtype, rows, length, length == "n" ? "symbol n: 1..5000\n" : ""));
}

TEST(Rows, OfAnyLengthAgree) {
  const Device device = testing::gpu_or("sim:sm_90");
  for (const char* dtype : {"f32", "bf16", "f64"})
    for (const char* length : {"1025", "2500", "3001", "n"}) {
      const Graph graph = scaled_rows(dtype, "5", length);
      EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, 3), device))
          << dtype << " " << length;
    }
  // Longer than a block's registers hold.
  const Graph sum = parse(R"(graph @main(%x: bf16[300, 40001]) {
  %y = reduce sum %x {axes: [1]} : bf16[300]
  return %y
})");
  EXPECT_TRUE(testing::agrees(sum, fuzz::random_inputs(sum, 3), device));
}

// Rows that are reduced, and sums of the columns of what is made from them.
Graph rows_and_columns(const std::string& dtype, const std::string& rows,
                       const std::string& length) {
  const bool wide = dtype == "f32" || dtype == "f64";
  return parse(fmt::format(R"({4}graph @main(%x: {0}[{1}, {2}], %d: {0}[{1}, {2}], %g: {0}[{2}]) {{
  %xf = {3} %x : {5}[{1}, {2}]
  %df = {3} %d : {5}[{1}, {2}]
  %s = reduce sum %xf {{axes: [1]}} : {5}[{1}]
  %sb = broadcast %s {{axes: [0]}} : {5}[{1}, {2}]
  %c = sub %xf, %sb : {5}[{1}, {2}]
  %gf = {3} %g : {5}[{2}]
  %gb = broadcast %gf {{axes: [1]}} : {5}[{1}, {2}]
  %w = mul %df, %gb : {5}[{1}, {2}]
  %wc = mul %w, %c : {5}[{1}, {2}]
  %b = reduce sum %wc {{axes: [1]}} : {5}[{1}]
  %bb = broadcast %b {{axes: [0]}} : {5}[{1}, {2}]
  %dx = sub %w, %bb : {5}[{1}, {2}]
  %dc = mul %df, %c : {5}[{1}, {2}]
  %dg = reduce sum %dc {{axes: [0]}} : {5}[{2}]
  %m = reduce max %df {{axes: [0]}} : {5}[{2}]
  return %dx, %dg, %m
}})",
                           dtype, rows, length, wide ? "neg" : "convert",
                           rows == "n" ? "symbol n: 0..5000\n" : "", wide ? dtype : "f32"));
}

TEST(RowsAndColumns, OfAnySizeAgree) {
  for (const char* name : {"sim:sm_90", "sim:sm_80"}) {
    const Device device(name);
    for (const auto& [dtype, rows, length] :
         std::initializer_list<std::tuple<const char*, const char*, const char*>>{
             {"f32", "300", "2"},
             {"f64", "271", "24"},
             {"bf16", "301", "129"},
             {"f16", "523", "96"},
             {"bf16", "264", "768"},
             {"f32", "n", "33"},
             {"f32", "n", "320"},
             {"bf16", "331", "2048"},
             {"f32", "265", "1001"}}) {
      const Graph graph = rows_and_columns(dtype, rows, length);
      for (const Precision precision : {Precision::Standard, Precision::Strict})
        EXPECT_TRUE(
            testing::agrees(graph, fuzz::random_inputs(graph, 3), device, {.precision = precision}))
            << name << " " << dtype << " " << rows << " " << length;
    }
  }
}

TEST(RowsAndColumns, AreOneKernelUnlessRowsAreLongOrFew) {
  const Target target = find_target("sm_90a").value();
  const auto kernels = [&](const char* dtype, const char* rows, const char* length) {
    int count = 0;
    CompileOptions options;
    options.observer = [&](const CompilePhase& phase) { count += phase.stage == "loops"; };
    compile(rows_and_columns(dtype, rows, length), target, options);
    return count;
  };
  EXPECT_EQ(kernels("bf16", "4096", "4096"), 1);
  EXPECT_EQ(kernels("f32", "n", "512"), 1);
  EXPECT_GT(kernels("f32", "4096", "32768"), 1);
  EXPECT_GT(kernels("f32", "16", "512"), 1);
}

// A result so short that its rows share a line, beside longer rows.
TEST(Rows, WithinOneLineAgree) {
  const Device device = testing::gpu_or("sim:sm_90");
  const Graph graph = parse(R"(graph @main(%x: i32[]) {
  %i = iota {axis: 2} : i32[7, 1, 7, 2]
  %r = reshape %i : i32[49, 2, 1]
  %a = reduce and %r {axes: [0]} : i32[2, 1]
  %y = pad %a, %x {low: [0, 0], high: [0, 1], interior: [0, 0]} : i32[2, 2]
  return %y, %a
})");
  EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, 1), device));
}

// A sum of three numbers within a minimum is no kernel of its own, and a thread that has loaded a
// point compares it with several.
TEST(Rows, ThatReadTheSameShareIt) {
  const std::string text = phase_text(parse(R"(graph @main(%x: f32[8192, 3], %y: f32[8192, 3]) {
  %0 = broadcast %x {axes: [0, 2]} : f32[8192, 8192, 3]
  %1 = broadcast %y {axes: [1, 2]} : f32[8192, 8192, 3]
  %2 = sub %0, %1 : f32[8192, 8192, 3]
  %3 = mul %2, %2 : f32[8192, 8192, 3]
  %4 = reduce sum %3 {axes: [2]} : f32[8192, 8192]
  %5 = reduce min %4 {axes: [1]} : f32[8192]
  return %5
})"),
                                      find_target("sm_90a").value(), "loops");
  EXPECT_NE(text.find("parallel i:4 on grid"), std::string::npos) << text;
  EXPECT_EQ(text.find("[8192, 8192]"), std::string::npos) << text;
}

// The tiles of a row begin where its line does; the last bytes of a line hold no whole vector.
TEST(Rows, OfOddLengthAreReadByVectors) {
  const Target gpu = find_target("sm_90a").value();
  const std::string kernel = phase_text(scaled_rows("bf16", "600", "3001"), gpu, "kernel");
  EXPECT_NE(kernel.find("mod(57*i_turn, 64) < 3001) fill 0.0 align 16 : bf16x8[3"),
            std::string::npos)
      << kernel;
  const std::string even = phase_text(scaled_rows("bf16", "600", "3072"), gpu, "kernel");
  EXPECT_EQ(even.find("- mod("), std::string::npos) << even;
}

// Products of odd sizes in every orientation, with something before and after the sum.
Graph product(const std::string& dtype, const std::string& x, const std::string& w,
              const std::string& axes, int64_t rows = 37, int64_t columns = 45) {
  return parse(fmt::format(R"(graph @main(%x: {0}[{1}], %w: {0}[{2}], %b: {0}[{5}]) {{
  %p = dot %x, %w {{{3}}} : {0}[{4}, {5}]
  %bb = broadcast %b {{axes: [1]}} : {0}[{4}, {5}]
  %s = add %p, %bb : {0}[{4}, {5}]
  %y = tanh %s : {0}[{4}, {5}]
  return %y
}})",
                           dtype, x, w, axes, rows, columns));
}

std::vector<Graph> contractions() {
  std::vector<Graph> graphs;
  for (const char* dtype : {"f32", "bf16", "f64"}) {
    graphs.push_back(product(dtype, "37, 70", "70, 45", "contract: [1] x [0]"));
    graphs.push_back(product(dtype, "37, 70", "45, 70", "contract: [1] x [1]"));
    graphs.push_back(product(dtype, "70, 37", "70, 45", "contract: [0] x [0]"));
    graphs.push_back(product(dtype, "5, 37, 14", "45, 14, 5", "contract: [0, 2] x [2, 1]"));
  }
  // Greatest sums in place of sums of products, of factors that are computed first.
  graphs.push_back(parse(R"(graph @main(%x: f32[37, 70], %w: f32[70, 45]) {
  %a = abs %x : f32[37, 70]
  %xb = broadcast %a {axes: [0, 1]} : f32[37, 70, 45]
  %wb = broadcast %w {axes: [1, 2]} : f32[37, 70, 45]
  %s = add %xb, %wb : f32[37, 70, 45]
  %y = reduce max %s {axes: [1]} : f32[37, 45]
  return %y
})"));
  graphs.push_back(parse(R"(symbol m: 1..50
symbol k: 1..80
graph @main(%x: f32[m, k], %w: f32[k, 45]) {
  %p = dot %x, %w {contract: [1] x [0]} : f32[m, 45]
  %y = tanh %p : f32[m, 45]
  return %y
})"));
  return graphs;
}

// Of a product on a CPU: its tiles, with the factors of the lanes in panels, those of the rows on
// chip, and what follows row by row, or not.
std::string cpu_steps(int64_t rows, int64_t lanes, const std::string& sum, bool pack, bool stage,
                      bool by_row) {
  std::string out = fmt::format(
      "split i {}; split i.2 {}; whole i.3; split j {}; split j.2 {}; whole j.3; reorder i.2 j; "
      "tuple i j; on i grid; unroll r 4",
      4 * rows, rows, 2 * lanes, lanes);
  if (by_row) out += fmt::format("; keep %{} chip; slabs y i 1 beside", sum);
  if (stage)
    out += "; factor r i j i.2; keep %xs chip; slabs %xs i 1; slabs %xs r 16; part r (r < 70)";
  if (pack)
    out += fmt::format("; pack {} j i {}; split j {}; whole j.2; on j grid", stage ? "r.2" : "r",
                       lanes, lanes);
  return out;
}

TEST(Contractions, EveryWayOfCopyingFactorsAgrees) {
  const int64_t lanes = Device("cpu").target().vector_lanes(4);
  for (const Graph& graph : contractions()) {
    const Graph& g = graph;
    const bool plain = g[g.inputs()[0]].type.shape.rank() == 2 &&
                       g[g.inputs()[0]].type.shape.numel().is_constant(37 * 70);
    if (!plain) continue;
    const std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 1);
    const auto chosen = testing::compile_for("cpu", graph);
    ASSERT_EQ(chosen->launches.size(), 1u) << to_text(graph);
    const std::string sum = graph.inputs().size() == 3 ? "p" : "y";
    for (int ways = 0; ways < 8; ++ways) {
      for (int64_t rows : {3, 5}) {
        const std::string schedule = cpu_steps(rows, lanes, sum, ways & 1, ways & 2, ways & 4);
        CompileOptions options;
        options.schedules[chosen->launches[0].name] = schedule;
        const auto program = testing::compile_for("cpu", graph, options);
        ASSERT_EQ(program->launches[0].schedule, schedule);
        const auto result = testing::check(graph, inputs, testing::run(program, "cpu", inputs));
        EXPECT_TRUE(result.ok) << schedule << "\n" << result.summary() << "\n" << to_text(graph);
      }
    }
  }
}

// What the rule chooses, on the simulator too.
TEST(Contractions, ChosenSchedulesAgree) {
  for (const char* device : {"cpu", "sim:x86-64-v3", "sim:x86-64-v4"})
    for (const Graph& graph : contractions()) {
      const std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 1);
      EXPECT_TRUE(testing::agrees(graph, inputs, device)) << device << "\n" << to_text(graph);
    }
}

// A factor lies where the large arrays do that it is made of: a convolution of one pixel over
// images whose channels are normed reads along the pixels, though there are more vectors of
// channels.
TEST(Contractions, FactorsAreReadAsTheLargeArraysLie) {
  const Graph graph =
      parse(R"(graph @main(%x: f32[96, 196], %a: f32[96], %b: f32[96], %w: f32[64, 96]) {
  %ab = broadcast %a {axes: [0]} : f32[96, 196]
  %bb = broadcast %b {axes: [0]} : f32[96, 196]
  %m = mul %x, %ab : f32[96, 196]
  %s = add %m, %bb : f32[96, 196]
  %0 = constant 0 : f32[]
  %f = max %s, %0 : f32[96, 196]
  %y = dot %w, %f {contract: [1] x [0]} : f32[64, 196]
  return %y
})");
  const std::string kernel = phase_text(graph, find_target("x86-64-v4").value(), "kernel");
  EXPECT_NE(kernel.find("= load %x["), std::string::npos) << kernel;
  EXPECT_EQ(kernel.find("load %x[196*lane"), std::string::npos) << kernel;
  EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, 1), "cpu"));
}

// A permutation takes squares of vectors, whose loads run along memory; at the ends of axes they
// are masked.
TEST(Squares, OfPermutations) {
  for (const auto& [dtype, rows, columns] :
       std::vector<std::tuple<const char*, int, int>>{{"f32", 64, 64},
                                                      {"f32", 33, 100},
                                                      {"f32", 16, 1000},
                                                      {"f32", 500, 17},
                                                      {"f32", 40, 9},
                                                      {"f32", 15, 40},
                                                      {"bf16", 70, 90},
                                                      {"f64", 40, 72},
                                                      {"i8", 65, 130},
                                                      {"bool", 48, 50}}) {
    const Graph graph = parse(fmt::format(R"(graph @main(%x: {0}[3, {1}, {2}]) {{
  %y = transpose %x {{permutation: [0, 2, 1]}} : {0}[3, {2}, {1}]
  return %y
}})",
                                          dtype, rows, columns));
    const std::string kernel = phase_text(graph, find_target("x86-64-v4").value(), "kernel");
    const bool squares = columns >= 16;
    EXPECT_EQ(kernel.find("*lane + e0") != std::string::npos, squares) << kernel;
    for (const char* device : {"cpu", "sim:x86-64-v3"})
      EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, 1), Device(device)));
  }
}

// A loop over what is joined or padded is cut around the boundary; elsewhere nothing is masked.
TEST(Boundaries, OfJoinedAndPaddedParts) {
  for (const char* text :
       {R"(graph @main(%x: f32[40, 512]) {
  %a = slice %x {starts: [0, 495], limits: [40, 512], strides: [1, 1]} : f32[40, 17]
  %b = slice %x {starts: [0, 0], limits: [40, 495], strides: [1, 1]} : f32[40, 495]
  %y = concat %a, %b {axis: 1} : f32[40, 512]
  return %y
})",
        R"(graph @main(%x: f32[40, 310], %v: f32[]) {
  %y = pad %x, %v {low: [0, 1], high: [0, 9], interior: [0, 0]} : f32[40, 320]
  return %y
})",
        R"(graph @main(%x: f32[40, 128], %z: f32[40, 384]) {
  %y = concat %x, %z {axis: 1} : f32[40, 512]
  return %y
})",
        // Both boundaries lie in one turn, and no turn may be made twice.
        R"(graph @main(%x: f32[40, 512], %d: f32[40, 4]) {
  %z = constant 0 : f32[]
  %p = pad %d, %z {low: [0, 261], high: [0, 247], interior: [0, 0]} : f32[40, 512]
  %y = add %x, %p : f32[40, 512]
  return %y updates %x
})",
        // Several tasks share the axis, so their first turns are known at run time.
        R"(graph @main(%a: f32[5], %b: f32[30000], %c: f32[35531]) {
  %y = concat %a, %b, %c {axis: 0} : f32[65536]
  return %y
})",
        R"(graph @main(%a: i32[32], %b: i32[192], %c: i32[32], %x: i32[256]) {
  %v = concat %a, %b, %c {axis: 0} : i32[256]
  %y = add %v, %x : i32[256]
  return %y updates %x
})",
        R"(graph @main(%x: f32[65536], %d: f32[4]) {
  %z = constant 0 : f32[]
  %p = pad %d, %z {low: [32765], high: [32767], interior: [0]} : f32[65536]
  %y = add %x, %p : f32[65536]
  return %y updates %x
})"}) {
    const Graph graph = parse(text);
    const std::string kernel = phase_text(graph, find_target("x86-64-v4").value(), "kernel");
    EXPECT_NE(kernel.find("part "), std::string::npos) << kernel;
    for (const char* device : {"cpu", "sim:x86-64-v3"})
      EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, 1), Device(device)));
  }
}

// Where a scan goes down an axis that may be empty, nothing lies before its beginning.
TEST(Scans, DownAnAxisThatMayBeEmpty) {
  const Graph graph = parse(R"(symbol n: 0..8
graph @main(%x: f32[n], %y: f32[3, n]) {
  %s = scan sum %x {axis: 0, reverse: true} : f32[n]
  %t = scan sum %y {axis: 1, reverse: true} : f32[3, n]
  return %s, %t
})");
  for (const int64_t n : {0, 1, 8})
    for (const char* device : {"sim:cpu", "sim:sm_90"}) {
      const std::vector<HostTensor> inputs = {HostTensor(DType::F32, {n}),
                                              HostTensor(DType::F32, {3, n})};
      EXPECT_TRUE(testing::agrees(graph, inputs, Device(device))) << device << " " << n;
    }
}

// Heads that are merged lie along what is summed, in runs.
TEST(Contractions, FactorsAreReadAlongRuns) {
  const Graph graph = parse(R"(graph @main(%x: f32[3, 196, 32], %w: f32[64, 96]) {
  %t = transpose %x {permutation: [0, 2, 1]} : f32[3, 32, 196]
  %f = reshape %t : f32[96, 196]
  %y = dot %w, %f {contract: [1] x [0]} : f32[64, 196]
  return %y
})");
  const std::string kernel = phase_text(graph, find_target("x86-64-v4").value(), "kernel");
  EXPECT_NE(kernel.find("= load %x["), std::string::npos) << kernel;
  EXPECT_EQ(kernel.find("32*lane"), std::string::npos) << kernel;
  EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, 1), "cpu"));
}

// Products without reuse, and sums of products, are sums like others; where precision allows it, a
// core adds products before they are rounded.
TEST(Contractions, OfOneRowAndSumsOfProductsAddByFma) {
  for (const char* text : {R"(graph @main(%x: f32[300], %w: f32[300, 70]) {
  %y = dot %x, %w {contract: [0] x [0]} : f32[70]
  return %y
})",
                           R"(graph @main(%x: f32[300], %w: f32[70, 300]) {
  %y = dot %x, %w {contract: [0] x [1]} : f32[70]
  return %y
})",
                           R"(graph @main(%x: f32[40, 300], %w: f32[40, 300]) {
  %p = mul %x, %w : f32[40, 300]
  %y = reduce sum %p {axes: [1]} : f32[40]
  return %y
})",
                           R"(graph @main(%x: f32[300, 40], %w: f32[300, 40]) {
  %p = mul %x, %w : f32[300, 40]
  %y = reduce sum %p {axes: [0]} : f32[40]
  return %y
})"}) {
    const Graph graph = parse(text);
    const std::string tile = phase_text(graph, Device("cpu").target(), "tile");
    EXPECT_EQ(tile.find("family="), std::string::npos) << tile;
    EXPECT_NE(tile.find(" = fma "), std::string::npos) << tile;
    for (const char* device : {"cpu", "sim:x86-64-v3"})
      EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, 1), device)) << tile;
    const CompileOptions strict{.precision = Precision::Strict};
    EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, 1), "cpu", strict)) << tile;
  }
}

// A product on a GPU whose factors are on chip slice by slice.
struct Slices {
  int64_t rows, lanes;
  std::vector<int64_t> threads;
  int64_t vector, slice, together, slots;
  bool matrices = false, copied = false;
  int64_t chunks = 1;
};

// `batch`: the axes are i, j and k, else i and j; what is summed is r.
std::string sliced_steps(const Slices& s, const std::string& sum, bool is_dot, bool batch) {
  const std::string rows = batch ? "j" : "i", lanes = batch ? "k" : "j";
  const std::vector<int64_t> extents{s.rows, s.lanes};
  const Layout layout = s.matrices ? warp_dot_layouts(extents, s.threads, s.vector, s.together).sums
                                   : product_layout(extents, s.threads, s.vector);
  std::string out =
      fmt::format("split {0} {2} padded; whole {0}.2; split {1} {3} padded; whole {1}.2; ", rows,
                  lanes, s.rows, s.lanes);
  if (batch) out += "tuple i j; tuple i k; ";
  out += fmt::format("{}on i grid; split r {} padded; ", batch ? "" : "tuple i j; ", s.slice);
  if (s.together > 1 && is_dot) out += fmt::format("split r.2 {}; whole r.3; ", s.together);
  if (is_dot) out += fmt::format("unit %{} {}; ", sum, s.matrices ? "mma" : "fma");
  if (s.chunks > 1) out += fmt::format("chunk r {} phase; last {}; ", s.chunks, lanes);
  const auto factor = [&](const std::string& name, const std::string& own, const std::string& other,
                          bool transposed) {
    out += s.copied ? fmt::format("stage {} r; ", name)
                    : fmt::format("factor r.2 {} {} r{}; keep %{}s chip; ", own, other,
                                  transposed ? " transposed" : "", name);
  };
  factor("x", rows, lanes, false);
  factor("w", lanes, rows, !s.matrices);
  out += fmt::format("unroll r.2 {}; ring r {}; ", s.slice / (is_dot ? s.together : 1), s.slots);
  if (s.chunks > 1) {
    const int64_t each = s.rows * s.lanes / (s.threads[0] * s.threads[1]);
    Layout all = layout;
    all.axes.insert(all.axes.begin() + 1, {{Resource::Register, each, s.chunks}});
    out += fmt::format("bind %{0}_part {1}; bind %{0} {2}; ", sum, layout.to_string(),
                       all.to_string());
  } else {
    out += fmt::format("bind %{} {}; ", sum, layout.to_string());
  }
  return out + "bind y " + layout.to_string();
}

void expect_sliced(const Graph& graph, const Device& device, const Slices& slices, bool batch) {
  std::string sum = "y";
  bool is_dot = false;
  for (uint32_t n = 0; n < graph.size(); ++n)
    if (const Node& node = graph[NodeId(n)]; node.as<DotOp>()) {
      is_dot = true;
      sum = node.label;
    }
  const std::string steps = sliced_steps(slices, sum, is_dot, batch);
  CompileOptions options{.by_cost = false};
  const auto chosen = testing::compile_for(device, graph, options);
  ASSERT_EQ(chosen->launches.size(), 1u) << to_text(graph);
  options.schedules[chosen->launches[0].name] = steps;
  const auto program = testing::compile_for(device, graph, options);
  ASSERT_EQ(program->launches[0].schedule, steps);
  for (const uint64_t seed : {1, 2, 3}) {
    const std::vector<HostTensor> inputs = fuzz::random_inputs(graph, seed);
    const auto result = testing::check(graph, inputs, testing::run(program, device, inputs));
    EXPECT_TRUE(result.ok) << steps << "\n" << result.summary() << "\n" << to_text(graph);
  }
}

// Slots for slices of each factor on chip, for any layout of the factors, any monoid and any size.
TEST(Slices, EveryScheduleAgrees) {
  const Slices forms[] = {{16, 32, {4, 8}, 4, 8, 4, 3},
                          {32, 16, {8, 8}, 2, 4, 1, 2},
                          {64, 64, {16, 16}, 1, 16, 1, 4},
                          {16, 4, {16, 4}, 1, 4, 2, 2},
                          {8, 64, {2, 16}, 4, 16, 4, 2, false, false, 2}};
  const Device device = testing::gpu_or("sim:sm_80");
  std::vector<Graph> graphs = contractions();
  std::erase_if(graphs, [](const Graph& g) { return g[g.inputs()[0]].type.shape.rank() != 2; });
  graphs.push_back(parse(R"(graph @main(%x: i32[37, 70], %w: i32[45, 70]) {
  %y = dot %x, %w {contract: [1] x [1]} : i32[37, 45]
  return %y
})"));
  graphs.push_back(product("f16", "70, 37", "70, 45", "contract: [0] x [0]"));
  for (const Graph& graph : graphs)
    for (const Slices& form : forms) expect_sliced(graph, device, form, /*batch=*/false);
  const Graph batched = parse(R"(symbol b: 0..3
symbol n: 0..100
graph @main(%x: f32[b, n, 36], %w: f32[b, 52, n], %r: f32[b, 36, 52]) {
  %p = dot %x, %w {batch: [0] x [0], contract: [1] x [2]} : f32[b, 36, 52]
  %y = add %p, %r : f32[b, 36, 52]
  return %y
})");
  for (const Slices& form : forms) expect_sliced(batched, device, form, /*batch=*/true);
}

// The same with slices that are copied past the registers.
TEST(Slices, CopiesAgree) {
  for (const Graph& graph : contractions()) {
    const TensorType& type = graph[graph.inputs()[0]].type;
    if (type.shape.rank() != 2 || type.dtype != DType::F32 || graph.inputs().size() != 3) continue;
    for (const char* device : {"sim:sm_80", "sim:sm_90"})
      for (const Slices& form : {Slices{16, 32, {4, 8}, 4, 8, 1, 3, false, true},
                                 Slices{32, 16, {8, 8}, 2, 16, 4, 4, false, true, 2}})
        expect_sliced(graph, Device(device), form, /*batch=*/false);
  }
}

// The same by the matrix units of warps, which add zeros where a slice reaches beyond the factors.
std::vector<Graph> matrix_products() {
  std::vector<Graph> graphs;
  const auto tf32 = [](const std::string& x, const std::string& w, const std::string& axes) {
    return product("f32", x, w, axes + ", tf32: true");
  };
  graphs.push_back(tf32("37, 70", "70, 45", "contract: [1] x [0]"));
  graphs.push_back(tf32("37, 72", "45, 72", "contract: [1] x [1]"));
  graphs.push_back(tf32("70, 37", "70, 45", "contract: [0] x [0]"));
  // A factor that is not zero beyond the reduced axis.
  graphs.push_back(parse(R"(symbol k: 0..100
graph @main(%x: f32[37, k], %w: f32[k, 45]) {
  %a = cos %x : f32[37, k]
  %b = cos %w : f32[k, 45]
  %y = dot %a, %b {contract: [1] x [0], tf32: true} : f32[37, 45]
  return %y
})"));
  graphs.push_back(tf32("37, 1", "45, 1", "contract: [1] x [1]"));
  return graphs;
}

// Of factors of 16 bits: rows and columns that ldmatrix takes as they lie or transposed, rows that
// no copy can take.
std::vector<Graph> half_products() {
  std::vector<Graph> graphs;
  for (const char* dtype : {"bf16", "f16"})
    for (const auto& [x, w, axes, rows, columns] :
         {std::tuple("40, 72", "72, 48", "[1] x [0]", 40, 48),
          std::tuple("40, 72", "48, 72", "[1] x [1]", 40, 48),
          std::tuple("72, 40", "72, 48", "[0] x [0]", 40, 48),
          std::tuple("70, 38", "44, 70", "[0] x [1]", 38, 44),
          std::tuple("37, 71", "71, 45", "[1] x [0]", 37, 45)})
      graphs.push_back(product(dtype, x, w, std::string("contract: ") + axes, rows, columns));
  return graphs;
}

TEST(Slices, EveryScheduleOfMatricesAgrees) {
  for (const char* machine : {"sim:sm_80", "sim:sm_90"})
    for (const Graph& graph : matrix_products()) {
      const bool one_step = graph[graph.inputs()[0]].type.shape.numel().is_constant(37);
      const bool plain = graph[graph.inputs()[0]].type.dtype == DType::F32 && !one_step;
      const bool loads = plain && graph.inputs().size() == 3;
      for (const Slices& form :
           {Slices{16, 32, {8, 8}, 2, 32, 8, 2, true}, Slices{32, 16, {16, 4}, 2, 16, 8, 2, true},
            Slices{64, 64, {16, 8}, 2, 16, 8, 2, true}, Slices{64, 64, {16, 8}, 8, 16, 8, 3, true},
            Slices{16, 32, {8, 8}, 4, 16, 8, 3, true, true},
            Slices{32, 16, {16, 4}, 4, 16, 8, 4, true, true, 2}}) {
        if (one_step || (form.copied && !loads)) continue;
        expect_sliced(graph, Device(machine), form, /*batch=*/false);
      }
    }
}

TEST(Slices, EveryScheduleOfMatricesOfHalvesAgrees) {
  for (const char* machine : {"sim:sm_80", "sim:sm_90"})
    for (const Graph& graph : half_products())
      for (const Slices& form :
           {Slices{32, 32, {8, 8}, 2, 32, 16, 2, true}, Slices{32, 8, {16, 4}, 2, 32, 16, 3, true},
            Slices{64, 64, {16, 8}, 2, 64, 16, 2, true},
            Slices{32, 32, {8, 8}, 2, 32, 16, 3, true, true},
            Slices{64, 64, {16, 8}, 2, 32, 16, 3, true, true},
            Slices{32, 8, {16, 4}, 2, 32, 16, 4, true, true, 2}}) {
        expect_sliced(graph, Device(machine), form, /*batch=*/false);
      }
}

// What the rule chooses: one factor is copied and the other one is computed from bytes and scales;
// windows with zeros around them; batches; lengths that a call decides, among them 0 and 1.
TEST(Slices, HalvesOfEveryOriginAgree) {
  const std::vector<Graph> graphs = {
      parse(R"(graph @main(%x: bf16[130, 520], %w: i8[520, 136], %b: f32[136]) {
  %i = convert %w : f32[520, 136]
  %c = broadcast %b {axes: [1]} : f32[520, 136]
  %f = mul %i, %c : f32[520, 136]
  %h = convert %f : bf16[520, 136]
  %y = dot %x, %h {contract: [1] x [0]} : bf16[130, 136]
  return %y
})"),
      parse(R"(symbol m: 0..400
symbol k: 0..600
graph @main(%x: f16[m, k], %w: f16[136, k], %r: f16[m, 136]) {
  %p = dot %x, %w {contract: [1] x [1]} : f16[m, 136]
  %s = add %p, %r : f16[m, 136]
  %y = tanh %s : f16[m, 136]
  return %y
})"),
      parse(R"(graph @main(%x: bf16[3, 96, 333], %w: bf16[3, 333, 104]) {
  %y = dot %x, %w {batch: [0] x [0], contract: [2] x [1]} : bf16[3, 96, 104]
  return %y
})"),
      parse(R"(graph @main(%x: f16[700, 120], %w: f16[104, 700]) {
  %a = cos %x : f16[700, 120]
  %b = sin %w : f16[104, 700]
  %y = dot %a, %b {contract: [0] x [1]} : f32[120, 104]
  return %y
})"),
      parse(R"(graph @main(%x: bf16[5, 9, 14, 64], %w: bf16[3, 3, 64, 72]) {
  %0 = constant 0 : bf16[]
  %1 = broadcast %x {axes: [0, 1, 3, 5]} : bf16[5, 9, 3, 14, 3, 64]
  %2 = windows %1, %0 {axes: [1, 3], taps: [2, 4], strides: [1, 1], dilations: [1, 1], gaps: [1, 1], low: [1, 1]} : bf16[5, 9, 3, 14, 3, 64]
  %3 = dot %2, %w {contract: [2, 4, 5] x [0, 1, 2]} : bf16[5, 9, 14, 72]
  return %3
})")};
  const CompileOptions options{.by_cost = false};
  for (const char* machine : {"sim:sm_80", "sim:sm_90"})
    for (const Graph& graph : graphs) {
      const Device device(machine);
      const auto program = testing::compile_for(device, graph, options);
      EXPECT_NE(program->launches.back().schedule.find("mma"), std::string::npos);
      const bool sized = !graph.symbols().empty();
      for (uint64_t seed = 1; seed <= (sized ? 4 : 1); ++seed) {
        const std::vector<HostTensor> inputs = fuzz::random_inputs(graph, seed);
        const auto result = testing::check(graph, inputs, testing::run(program, device, inputs));
        EXPECT_TRUE(result.ok) << result.summary() << "\n" << to_text(graph);
      }
    }
}

// The error of a sum does not grow with its length.
TEST(PartialSums, LongSumsOnCpusAreSumsOfShorterOnes) {
  const Device cpu("cpu");
  const auto schedule = [&](const Graph& graph) {
    return compile(graph, cpu.target()).launches[0].schedule;
  };
  const auto product = [](int64_t terms) {
    return parse(fmt::format(R"(graph @main(%x: f32[64, {0}], %w: f32[{0}, 64]) {{
  %y = dot %x, %w {{contract: [1] x [0]}} : f32[64, 64]
  return %y
}})",
                             terms));
  };
  const auto columns = [](int64_t terms) {
    return parse(fmt::format(R"(graph @main(%x: f32[{}, 64]) {{
  %y = reduce sum %x {{axes: [0]}} : f32[64]
  return %y
}})",
                             terms));
  };
  EXPECT_EQ(schedule(product(500)).find("partial"), std::string::npos);
  // Which of the loops over r is cut depends on whether rows are copied.
  const auto parts = [&](int64_t terms) {
    const std::string text = schedule(product(terms));
    const size_t at = text.find("partial r");
    return at == std::string::npos ? "" : text.substr(text.find(' ', at + 9) + 1, 3);
  };
  EXPECT_EQ(parts(2400), "240");
  EXPECT_EQ(parts(4001), "256");
  for (const Graph& graph : {product(20'000), product(19'997), columns(60'001)}) {
    EXPECT_NE(schedule(graph).find("partial"), std::string::npos);
    // Terms of one sign: added one after the other, they give an error of several 1e-5.
    std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 1);
    for (HostTensor& input : inputs)
      for (int64_t i = 0; i < input.numel(); ++i)
        input.set_double(i, 0.5 + 0.4 * std::sin(static_cast<double>(i)));
    const HostTensor got = testing::run(testing::compile_for(cpu, graph), cpu, inputs).front();
    for (int64_t column = 0; column < 64; ++column) {
      double exact = 0;
      for (int64_t i = 0; i < inputs[0].shape().back() && inputs.size() == 2; ++i)
        exact += inputs[0].get_double(i) * inputs[1].get_double(64 * i + column);
      for (int64_t i = 0; i < inputs[0].shape()[0] && inputs.size() == 1; ++i)
        exact += inputs[0].get_double(64 * i + column);
      ASSERT_NEAR(got.get_double(column), exact, 2e-6 * exact) << schedule(graph);
    }
  }
}

// tf32 is asked for, never implied.
TEST(Slices, MatricesMultiplyWhatAllowsIt) {
  const auto schedule = [](const std::string& dtype, const std::string& more) {
    const Graph graph = parse(fmt::format(R"(graph @main(%x: {0}[512, 512], %w: {0}[512, 512]) {{
  %y = dot %x, %w {{contract: [1] x [0]{1}}} : {0}[512, 512]
  return %y
}})",
                                          dtype, more));
    return compile(graph, find_target("sm_80").value()).launches[0].schedule;
  };
  EXPECT_EQ(schedule("f32", "").find("mma"), std::string::npos);
  EXPECT_NE(schedule("f64", "").find("mma"), std::string::npos);
  EXPECT_NE(schedule("f32", ", tf32: true").find("mma"), std::string::npos);
  EXPECT_NE(schedule("bf16", "").find("mma"), std::string::npos);
}

// Matrices of 16 bits are loaded a step before warps multiply them: the loop over slices carries
// those of its first step, waits once and has one barrier, and the copies into the next free slot
// stand in front of the first product.
TEST(Slices, MatricesOfHalvesAreLoadedAStepAhead) {
  const auto count = [](std::string_view text, std::string_view what) {
    int64_t out = 0;
    for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++out;
    return out;
  };
  for (const auto& [x, w, axes] : {std::tuple("2048, 1024", "1024, 2048", "[1] x [0]"),
                                   std::tuple("2048, 1024", "2048, 1024", "[1] x [1]"),
                                   std::tuple("1024, 2048", "1024, 2048", "[0] x [0]")}) {
    const Graph graph = parse(fmt::format(R"(graph @main(%x: bf16[{}], %w: bf16[{}]) {{
  %y = dot %x, %w {{contract: {}}} : bf16[2048, 2048]
  return %y
}})",
                                          x, w, axes));
    const Target target = find_target("sm_80").value();
    const std::string kernel = phase_text(graph, target, "kernel");
    const size_t begin = kernel.find(" = for "), end = kernel.find("yield", begin);
    ASSERT_NE(begin, std::string::npos) << kernel;
    const std::string before = kernel.substr(0, begin), loop = kernel.substr(begin, end - begin);
    EXPECT_GT(count(before, "ldmatrix"), 0) << kernel;
    EXPECT_GT(count(loop.substr(0, loop.find('\n')), "%ldmatrix"), 0) << kernel;
    EXPECT_EQ(count(loop, "bar.sync"), 1) << kernel;
    EXPECT_EQ(count(loop, "cp.async.wait"), 1) << kernel;
    EXPECT_GT(loop.find("mma."), loop.find("cp.async.commit")) << kernel;
    EXPECT_GT(loop.rfind("ldmatrix"), loop.find("bar.sync")) << kernel;
    EXPECT_GT(loop.rfind("mma."), loop.rfind("= ldmatrix")) << kernel;
    // Places that differ by constants share the registers of one address.
    const std::string ptx = phase_text(graph, target, "ptx");
    const size_t copy = ptx.rfind("cp.async.cg");
    ASSERT_NE(copy, std::string::npos) << ptx;
    EXPECT_NE(ptx.substr(copy, ptx.find(';', copy) - copy).find("+"), std::string::npos) << ptx;
  }
}

// Blocks for all multiprocessors: of smaller tiles, or of chunks of the depth. No size is a case of
// its own.
TEST(Slices, FewRowsTakeSmallTilesOrSplits) {
  const auto tile = [](int64_t m, int64_t n, int64_t k) {
    const Graph graph = parse(fmt::format(R"(graph @main(%x: f32[{0}, {2}], %w: f32[{2}, {1}]) {{
  %y = dot %x, %w {{contract: [1] x [0]}} : f32[{0}, {1}]
  return %y
}})",
                                          m, n, k));
    return phase_text(graph, find_target("sm_90a").value(), "tile");
  };
  EXPECT_NE(tile(4096, 4096, 4096).find("split i 128 padded; whole i.2; split j 128"),
            std::string::npos);
  for (const auto& [m, n, k] : {std::tuple(64, 4096, 4096), std::tuple(512, 512, 512),
                                std::tuple(1000, 1000, 1000), std::tuple(300, 300, 20000)}) {
    const std::string text = tile(m, n, k);
    const size_t grid = text.find("phase grid(");
    ASSERT_NE(grid, std::string::npos) << text;
    int64_t blocks = 1;
    for (size_t at = grid; at < text.find(')', grid); ++at)
      if (text.compare(at, 2, ": ") == 0) blocks *= std::stol(text.substr(at + 2));
    EXPECT_GE(blocks, 132) << text;
    EXPECT_NE(text.find("ring r"), std::string::npos) << text;
  }
  EXPECT_NE(tile(64, 4096, 4096).find("chunk r"), std::string::npos);
}

// What the rule chooses for a large product: the inner loop reads what is on chip, 16 bytes at a
// time, and its sums stay in registers.
TEST(Slices, LargeProductsReadThem) {
  for (const char* machine : {"sm_80", "sm_90a"}) {
    for (const auto& [x, w, axes] : {std::tuple("1024, 512", "512, 2048", "[1] x [0]"),
                                     std::tuple("1024, 512", "2048, 512", "[1] x [1]"),
                                     std::tuple("512, 1024", "512, 2048", "[0] x [0]")}) {
      const Graph graph = parse(fmt::format(R"(graph @main(%x: f32[{}], %w: f32[{}]) {{
  %y = dot %x, %w {{contract: {}}} : f32[1024, 2048]
  return %y
}})",
                                            x, w, axes));
      const Target target = find_target(machine).value();
      const std::string tile = phase_text(graph, target, "tile");
      const size_t loop = tile.find("unroll", tile.find("phase")), end = tile.find("yield", loop);
      ASSERT_NE(loop, std::string::npos) << tile;
      EXPECT_EQ(tile.substr(loop, end - loop).find("load %x["), std::string::npos) << tile;
      EXPECT_EQ(tile.substr(loop, end - loop).find("load %w["), std::string::npos) << tile;
      const std::string kernel = phase_text(graph, target, "kernel");
      const size_t multiplies = kernel.find("unroll", kernel.find("phase"));
      EXPECT_EQ(kernel.find("bar.sync", multiplies), std::string::npos) << "one barrier a turn";
    }
  }
}

// A product of what 3x3 windows of images show, with `fill` outside.
std::string product_of_windows(int64_t extent, int64_t channels, int64_t stride,
                               const std::string& fill, std::string_view stage,
                               int64_t images = 64) {
  const Graph graph = parse(fmt::format(
      R"(graph @main(%x: bf16[{n}, {h}, {h}, {c}], %w: bf16[3, 3, {c}, 128]) {{
  %0 = constant {fill} : bf16[]
  %1 = broadcast %x {{axes: [0, 1, 2, 5]}} : bf16[{n}, {h}, {h}, 3, 3, {c}]
  %2 = windows %1, %0 {{axes: [1, 2], taps: [3, 4], strides: [{s}, {s}], dilations: [1, 1], gaps: [1, 1], low: [1, 1]}} : bf16[{n}, {o}, {o}, 3, 3, {c}]
  %3 = dot %2, %w {{contract: [3, 4, 5] x [0, 1, 2]}} : bf16[{n}, {o}, {o}, 128]
  return %3
}})",
      fmt::arg("n", images), fmt::arg("h", extent), fmt::arg("c", channels), fmt::arg("s", stride),
      fmt::arg("o", (extent - 1) / stride + 1), fmt::arg("fill", fill)));
  std::string text;
  CompileOptions options;
  options.by_cost = false;
  options.observer = [&](const CompilePhase& phase) {
    if (phase.stage == stage) text += phase.text();
  };
  compile(graph, find_target("sm_90a").value(), options);
  return text;
}

TEST(Windows, AreCopiedAsBoxes) {
  const auto text = [](int64_t extent, int64_t stride) {
    return product_of_windows(extent, 128, stride, "0", "loops");
  };
  // Boxes of powers of two that fill images, and what outside of them is 0.
  EXPECT_NE(text(28, 1).find("stage x[8*i + floordiv(p, 16), 4*j + r + mod(floordiv(p, 4), 4) - 1, "
                             "4*k + s + mod(p, 4) - 1, t] else 0"),
            std::string::npos);
  EXPECT_NE(text(28, 1).find("stream r, s, t:64 ring"), std::string::npos);
  // Places of many images are rows too, one pixel of each.
  EXPECT_NE(text(27, 2).find("stage x[i, 2*j + r - 1, 2*k + s - 1, t] else 0"), std::string::npos);
  // Every second pixel is a neighbour.
  EXPECT_NE(text(56, 2).find("x: in bf16[64, 28, 2, 28, 256]"), std::string::npos);
}

TEST(Windows, AreNotCopiedWhereBoxesCannotBeThem) {
  const auto refusal = [](int64_t extent, int64_t channels, int64_t stride, const std::string& fill,
                          int64_t images = 64) {
    return product_of_windows(extent, channels, stride, fill, "refusal", images);
  };
  EXPECT_NE(refusal(28, 128, 1, "1").find("a factor must be 0 outside of its tensor"),
            std::string::npos);
  EXPECT_NE(refusal(27, 128, 2, "0", 32).find("a factor is read with strides"), std::string::npos);
  EXPECT_NE(refusal(56, 104, 2, "0")
                .find("the memory of a factor continues beyond the end of the summed axis"),
            std::string::npos);
}

// Windows that do not overlap: each thread has results of its own, of 8 neighbours in each of two
// lines.
TEST(Windows, FewTermsAreFoldedByThreads) {
  const std::string text = phase_text(parse(R"(graph @main(%x: bf16[64, 224, 224, 64]) {
  %0 = constant -inf : bf16[]
  %1 = broadcast %x {axes: [0, 1, 2, 5]} : bf16[64, 224, 224, 2, 2, 64]
  %2 = windows %1, %0 {axes: [1, 2], taps: [3, 4], strides: [2, 2], dilations: [1, 1], gaps: [1, 1], low: [0, 0]} : bf16[64, 112, 112, 2, 2, 64]
  %3 = reduce max %2 {axes: [3, 4]} : bf16[64, 112, 112, 64]
  return %3
})"),
                                      find_target("sm_90a").value(), "loops");
  EXPECT_NE(text.find("parallel ij, k:"), std::string::npos) << text;
  EXPECT_NE(text.find(" | l1:"), std::string::npos) << text;
  EXPECT_EQ(text.find("stream s:"), std::string::npos) << text;
}

TEST(Contractions, LargeOnesReadCopies) {
  const auto text = [&](const std::string& x, const std::string& w, const std::string& axes) {
    return phase_text(parse(fmt::format(R"(graph @main(%x: f32[{}], %w: f32[{}]) {{
  %y = dot %x, %w {{contract: {}}} : f32[512, 512]
  return %y
}})",
                                        x, w, axes)),
                      Device("cpu").target(), "tile");
  };
  const auto expect_copies = [](const std::string& tile, bool of_rows) {
    EXPECT_NE(tile.find("transposed panels"), std::string::npos) << tile;
    // The inner loop reads panels, and rows where they lie along what is summed.
    const size_t loop = tile.rfind("unroll"), end = tile.find("yield", loop);
    const std::string turn = tile.substr(loop, end - loop);
    EXPECT_EQ(turn.find("load %w["), std::string::npos) << tile;
    EXPECT_EQ(turn.find("load %x[") == std::string::npos, of_rows) << tile;
  };
  expect_copies(text("512, 512", "512, 512", "[1] x [0]"), false);
  expect_copies(text("512, 512", "512, 512", "[1] x [1]"), false);
  expect_copies(text("512, 512", "512, 512", "[0] x [0]"), true);
}

// Products on matrix units: tiles of so many columns, what `grid` and `groups` are, and the loops
// in between.
std::string product_steps(const std::string& grid, int64_t columns, int64_t slots,
                          const std::string& rest) {
  return fmt::format(
      "split i 128 padded; split i.2 64 padded; whole i.3; split j {} padded; whole j.2; "
      "reorder i.2 j; tuple i j; on i grid; on i.2 group; split r 64 padded; whole r.2; stage x r; "
      "stage w r; ring r {}; roles 40 232; unit %p wgmma{}; deal i {}",
      columns, slots, rest, grid);
}

// The variants are given schedules of one graph, of sizes that no tile divides.
TEST(MatrixUnits, EveryScheduleAgrees) {
  const Graph graph = parse(R"(symbol m: 1..400
graph @main(%x: bf16[m, 136], %w: bf16[136, 328], %b: bf16[328], %o: f32[m, 328]) {
  %p = dot %x, %w {contract: [1] x [0]} : bf16[m, 328]
  %c = broadcast %b {axes: [1]} : bf16[m, 328]
  %s = add %p, %c : bf16[m, 328]
  %y = relu %s : bf16[m, 328]
  %f = convert %s : f32[m, 328]
  %z = add %f, %o : f32[m, 328]
  return %y, %z
})");
  const Device device = testing::gpu_or("sim:sm_90");
  const std::string kernel = testing::compile_for(device, graph)->launches[0].name;
  const std::string slabs = "; slabs y j 64 beside", rows = "; slabs y i 16 beside; stage %p j.2";
  for (const std::string& schedule :
       {product_steps("rows, persistent 3", 256, 2, slabs),
        product_steps("band 2, persistent 3", 64, 2, ""),
        product_steps("band 3, persistent 5", 192, 3, slabs),
        product_steps("columns, persistent 2", 128, 4, slabs), product_steps("rows", 128, 2, slabs),
        product_steps("rows, persistent 3", 256, 2, slabs + rows),
        product_steps("rows, persistent 5", 64, 3, "; slabs y i 16 beside; stage %p i.2"),
        product_steps("band 1, persistent 4", 192, 2, slabs + rows)}) {
    CompileOptions options;
    options.schedules[kernel] = schedule;
    const auto program = testing::compile_for(device, graph, options);
    ASSERT_EQ(program->launches.size(), 1u);
    ASSERT_EQ(program->launches[0].schedule, schedule);
    for (const uint64_t seed : {1, 2}) {
      const auto inputs = fuzz::random_inputs(graph, seed);
      const auto result = testing::check(graph, inputs, testing::run(program, device, inputs));
      EXPECT_TRUE(result.ok) << schedule << "\n" << result.summary();
    }
  }
}

// Products are served by trees with roles, whatever is around them: batches, in every place that a
// batch axis can have in memory, products of more axes that are matrices when seen with fewer,
// factors and results in any order.
TEST(MatrixUnits, WhateverIsAroundThem) {
  const Device device = testing::gpu_or("sim:sm_90");
  for (
      const char* text : {
          R"(symbol b: 1..64
symbol m: 1..200
graph @main(%x: bf16[b, m, 72], %w: bf16[b, 72, 136], %r: f32[b, m, 136]) {
  %p = dot %x, %w {batch: [0] x [0], contract: [2] x [1]} : f32[b, m, 136]
  %y = add %p, %r : f32[b, m, 136]
  return %y
})",
          R"(graph @main(%q: f16[2, 330, 3, 64], %k: f16[2, 136, 3, 64]) {
  %s = dot %q, %k {batch: [0, 2] x [0, 2], contract: [3] x [3]} : f16[2, 3, 330, 136]
  %y = neg %s : f16[2, 3, 330, 136]
  return %y
})",
          R"(graph @main(%p: bf16[2, 3, 330, 136], %v: bf16[2, 136, 3, 64]) {
  %o = dot %p, %v {batch: [0, 1] x [0, 2], contract: [3] x [1]} : bf16[2, 3, 330, 64]
  %y = transpose %o {permutation: [0, 2, 1, 3]} : bf16[2, 330, 3, 64]
  return %y, %o
})",
          R"(graph @main(%x: bf16[3, 167, 136], %w: bf16[136, 264], %b: bf16[264], %r: bf16[3, 167, 264]) {
  %p = dot %x, %w {contract: [2] x [0]} : bf16[3, 167, 264]
  %c = broadcast %b {axes: [2]} : bf16[3, 167, 264]
  %s = add %p, %c : bf16[3, 167, 264]
  %y = add %s, %r : bf16[3, 167, 264]
  return %y
})",
          // Sums over two axes that are one in memory, or not.
          R"(graph @main(%x: bf16[6, 67, 264], %d: bf16[6, 67, 168]) {
  %y = dot %x, %d {contract: [0, 1] x [0, 1]} : f32[264, 168]
  return %y
})",
          R"(graph @main(%x: bf16[2, 4, 70, 128], %w: bf16[512, 264]) {
  %t = transpose %x {permutation: [0, 2, 1, 3]} : bf16[2, 70, 4, 128]
  %m = reshape %t : bf16[2, 70, 512]
  %y = dot %m, %w {contract: [2] x [0]} : bf16[2, 70, 264]
  return %y
})",
          // Results that lie along the left factor's own axis.
          R"(graph @main(%x: bf16[328, 208], %w: bf16[264, 328]) {
  %p = dot %x, %w {contract: [0] x [1]} : f32[208, 264]
  %y = transpose %p {permutation: [1, 0]} : f32[264, 208]
  return %y
})",
          // What is written over what is read: all is read first.
          R"(graph @main(%p: f32[264, 208], %m: f32[264, 208], %x: bf16[328, 208], %d: bf16[328, 264]) {
  %g = dot %x, %d {contract: [0] x [0]} : f32[208, 264]
  %t = transpose %g {permutation: [1, 0]} : f32[264, 208]
  %a = add %m, %t : f32[264, 208]
  %h = tanh %a : f32[264, 208]
  %q = sub %p, %h : f32[264, 208]
  return %a updates %m, %q updates %p
})",
          // A sum of one turn, and a factor that no tile changes; one tile of rows.
          R"(graph @main(%x: bf16[4200, 64], %w: bf16[64, 64]) {
  %y = dot %x, %w {contract: [1] x [0]} : bf16[4200, 64]
  return %y
})",
          R"(graph @main(%x: bf16[128, 264], %w: bf16[264, 520]) {
  %y = dot %x, %w {contract: [1] x [0]} : bf16[128, 520]
  return %y
})",
          // A matrix times itself.
          R"(graph @main(%x: bf16[264, 328]) {
  %y = dot %x, %x {contract: [1] x [1]} : bf16[264, 264]
  return %y
})",
      }) {
    const Graph graph = parse(text);
    const auto program = testing::compile_for(device, graph);
    ASSERT_EQ(program->launches.size(), 1u) << text;
    EXPECT_NE(program->launches[0].schedule.find("wgmma"), std::string::npos)
        << program->launches[0].schedule;
    EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, 7), device)) << text;
  }
}

// Two products that share a factor are one kernel.
TEST(MatrixUnits, GatedProductIsOneKernel) {
  const Graph graph =
      parse(R"(graph @main(%x: bf16[200, 328], %w: bf16[328, 264], %g: bf16[328, 264]) {
  %u = dot %x, %w {contract: [1] x [0]} : bf16[200, 264]
  %v = dot %x, %g {contract: [1] x [0]} : bf16[200, 264]
  %s = silu %v : bf16[200, 264]
  %y = mul %s, %u : bf16[200, 264]
  return %y
})");
  const Device device = testing::gpu_or("sim:sm_90");
  const auto program = testing::compile_for(device, graph);
  ASSERT_EQ(program->launches.size(), 1u);
  EXPECT_NE(program->launches[0].schedule.find("unit %u wgmma; unit %v wgmma"), std::string::npos)
      << program->launches[0].schedule;
  EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, 7), device));
}

// Parts of long sums are products of their own, which copy their part only.
TEST(MatrixUnits, SplitSumsAgree) {
  const Device device = testing::gpu_or("sim:sm_90");
  for (const char* text :
       {R"(graph @main(%x: bf16[72, 4096], %w: bf16[4096, 64], %r: bf16[72, 64]) {
  %p = dot %x, %w {contract: [1] x [0]} : bf16[72, 64]
  %y = add %p, %r : bf16[72, 64]
  return %y
})",
        R"(graph @main(%x: f16[4, 1024, 72], %w: f16[4, 1024, 64]) {
  %y = dot %x, %w {contract: [0, 1] x [0, 1]} : f32[72, 64]
  return %y
})"}) {
    const Graph graph = parse(text);
    const auto program = testing::compile_for(device, graph);
    ASSERT_EQ(program->launches.size(), 2u);
    EXPECT_NE(program->launches[0].schedule.find("wgmma"), std::string::npos)
        << program->launches[0].schedule;
    EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, 4), device));
  }
}

// A part of the contracted axis ends within a copy: what lies behind it is no part of the sum.
TEST(MatrixUnits, PartsOfTheContractedAxis) {
  const Device device = testing::gpu_or("sim:sm_90");
  for (const int64_t depth : {100, 128}) {
    const Graph graph = parse(fmt::format(R"(graph @main(%x: bf16[512, 136], %w: bf16[136, 512]) {{
  %a = slice %x {{starts: [0, 0], limits: [512, {0}], strides: [1, 1]}} : bf16[512, {0}]
  %b = slice %w {{starts: [0, 0], limits: [{0}, 512], strides: [1, 1]}} : bf16[{0}, 512]
  %y = dot %a, %b {{contract: [1] x [0]}} : bf16[512, 512]
  return %y
}})",
                                          depth));
    EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, 4), device)) << depth;
  }
}

// Batches and rows in wide ranges: no address may seem to leave 64 bits.
TEST(MatrixUnits, SizesInWideRanges) {
  const Graph graph = parse(R"(symbol h: 1..65536
symbol s: 1..65536
graph @main(%q: bf16[h, s, 64], %k: bf16[h, s, 64]) {
  %y = dot %q, %k {batch: [0] x [0], contract: [2] x [2]} : f32[h, s, s]
  return %y
})");
  const Device device = testing::gpu_or("sim:sm_90");
  const auto program = testing::compile_for(device, graph);
  EXPECT_NE(program->launches[0].schedule.find("wgmma"), std::string::npos)
      << program->launches[0].schedule;
  std::vector<HostTensor> inputs;
  for (uint64_t i = 0; i < 2; ++i) {
    inputs.emplace_back(DType::BF16, std::vector<int64_t>{3, 150, 64});
    for (int64_t j = 0; j < inputs[i].numel(); ++j)
      inputs[i].set_double(j, static_cast<double>((j * 7 + static_cast<int64_t>(i)) % 11) - 5);
  }
  EXPECT_TRUE(testing::agrees(graph, inputs, device));
}

// Asynchronous units read tf32 along the contracted axis, and those of warps along any.
TEST(MatrixUnits, Tf32Agrees) {
  const Device device = testing::gpu_or("sim:sm_90");
  const auto agrees = [&](const char* unit, const char* text) {
    const Graph graph = parse(text);
    const auto program = testing::compile_for(device, graph);
    EXPECT_NE(program->launches.back().schedule.find(unit), std::string::npos)
        << program->launches.back().schedule;
    EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, 4), device));
  };
  agrees("wgmma", R"(graph @main(%x: f32[130, 1028], %w: f32[136, 1028], %b: f32[136]) {
  %p = dot %x, %w {contract: [1] x [1], tf32: true} : f32[130, 136]
  %c = broadcast %b {axes: [1]} : f32[130, 136]
  %y = add %p, %c : f32[130, 136]
  return %y
})");
  agrees(" mma", R"(graph @main(%x: f32[600, 104], %w: f32[104, 520]) {
  %y = dot %x, %w {contract: [1] x [0], tf32: true} : f32[600, 520]
  return %y
})");
}

// Sums of f32 go through the chip as such.
TEST(MatrixUnits, LongEpiloguesGoRowByRow) {
  const auto text = [](const std::string& dtype) {
    return fmt::format(R"(graph @main(%x: bf16[300, 1000], %w: bf16[1000, 272]) {{
  %p = dot %x, %w {{contract: [1] x [0]}} : {0}[300, 272]
  %s = sin %p : {0}[300, 272]
  %t = tanh %s : {0}[300, 272]
  return %t
}})",
                       dtype);
  };
  const Device device = testing::gpu_or("sim:sm_90");
  for (const std::string dtype : {"bf16", "f32"}) {
    const Graph graph = parse(text(dtype));
    const auto program = testing::compile_for(device, graph);
    EXPECT_NE(program->launches[0].schedule.find("stage %p"), std::string::npos)
        << program->launches[0].schedule;
    const auto inputs = fuzz::random_inputs(graph, 3);
    const auto result = testing::check(graph, inputs, testing::run(program, device, inputs));
    EXPECT_TRUE(result.ok) << dtype << "\n" << result.summary();
  }
}

// Products within windows of an image. Both factors are parts of one tensor, and their rows and
// those of the result are places of a window. Tiles may not reach into the next window.
TEST(MatrixUnits, RowsOfWindowsAgree) {
  const Device device = testing::gpu_or("sim:sm_90");
  for (const int64_t window : {6, 7, 8}) {
    const auto text = [&] {
      return fmt::format(R"(graph @main(%x: bf16[2, {0}, {1}, 768]) {{
  %0 = reshape %x : bf16[2, 2, {2}, 4, {2}, 3, 4, 64]
  %1 = transpose %0 {{permutation: [5, 0, 1, 3, 6, 2, 4, 7]}} : bf16[3, 2, 2, 4, 4, {2}, {2}, 64]
  %2 = reshape %1 : bf16[3, 16, 4, {3}, 64]
  %3 = slice %2 {{starts: [0, 0, 0, 0, 0], limits: [1, 16, 4, {3}, 64], strides: [1, 1, 1, 1, 1]}} : bf16[1, 16, 4, {3}, 64]
  %q = reshape %3 : bf16[16, 4, {3}, 64]
  %4 = slice %2 {{starts: [1, 0, 0, 0, 0], limits: [2, 16, 4, {3}, 64], strides: [1, 1, 1, 1, 1]}} : bf16[1, 16, 4, {3}, 64]
  %k = reshape %4 : bf16[16, 4, {3}, 64]
  %y = dot %q, %k {{batch: [0, 1] x [0, 1], contract: [3] x [3]}} : bf16[16, 4, {3}, {3}]
  return %y
}})",
                         2 * window, 4 * window, window, window * window);
    };
    const Graph graph = parse(text());
    EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, 5), device)) << window;
  }
}

// --- Schedules that somebody typed
// ----------------------------------------------------------------

Graph softmax() {
  return parse(R"(symbol n: 1..64
graph @main(%x: f32[n, 100]) {
  %m = reduce max %x {axes: [1]} : f32[n]
  %mb = broadcast %m {axes: [0]} : f32[n, 100]
  %d = sub %x, %mb : f32[n, 100]
  %e = exp %d : f32[n, 100]
  %s = reduce sum %e {axes: [1]} : f32[n]
  %sb = broadcast %s {axes: [0]} : f32[n, 100]
  %y = div %e, %sb : f32[n, 100]
  return %y
})");
}

Graph small_product() { return product("f32", "37, 70", "70, 45", "contract: [1] x [0]"); }

std::string error_of(const Graph& graph, const std::string& device, const std::string& kernel,
                     const std::string& schedule) {
  try {
    testing::compile_for(Device(device), graph, {.schedules = {{kernel, schedule}}});
  } catch (const Error& error) {
    EXPECT_NE(error.kind(), ErrorKind::Internal) << schedule << "\n" << error.what();
    return error.what();
  }
  return {};
}

TEST(TypedSchedules, KernelsHaveToExist) {
  const std::string error = error_of(softmax(), "sim:cpu", "nope", "family=row");
  EXPECT_NE(error.find("there is no kernel with that name"), std::string::npos) << error;
  EXPECT_NE(error.find(testing::compile_for("sim:cpu", softmax())->launches[0].name),
            std::string::npos)
      << error;
}

TEST(TypedSchedules, ErrorsSayWhatFits) {
  const std::string kernel = testing::compile_for("sim:cpu", softmax())->launches[0].name;
  const std::pair<std::string, std::string> cases[] = {
      {"family=row block=8", "step"},
      {"split i 8; whole k", "there is no loop k"},
      {"whole i", "[not-constant]"},
      {"on i grid; on i grid", "[nesting]"},
      {"on i grid; split j 64; whole j.2; ring j 2", "is not a stream with stages"},
  };
  for (const auto& [schedule, expected] : cases) {
    const std::string error = error_of(softmax(), "sim:cpu", kernel, schedule);
    EXPECT_NE(error.find(expected), std::string::npos) << schedule << "\n" << error;
  }
}

TEST(TypedSchedules, BlocksHaveTheThreadsOfAMachine) {
  const std::string kernel = testing::compile_for("sim:sm_90", small_product())->launches[0].name;
  const std::string error =
      error_of(small_product(), "sim:sm_90", kernel,
               "split i 64 padded; whole i.2; split j 64 padded; whole j.2; tuple i j; on i grid; "
               "bind y (w2:32 l2:2 | w1:2 l1:2 r1:16)");
  EXPECT_NE(error.find("at most 32 warps"), std::string::npos) << error;
}

TEST(TypedSchedules, WhatTheRulesChooseIsAccepted) {
  const Graph copy = parse(R"(graph @main(%x: f32[]) {
  %y = exp %x : f32[]
  return %y
})");
  for (const std::string device : {"sim:cpu", "sim:sm_80", "sim:sm_90"}) {
    for (const Graph& graph : {copy, sum_of("f32[3, 70]"), softmax(), small_product()}) {
      CompileOptions options;
      const auto chosen = testing::compile_for(Device(device), graph);
      for (const Launch& launch : chosen->launches)
        if (!launch.schedule.empty()) options.schedules[launch.name] = launch.schedule;
      const auto again = testing::compile_for(Device(device), graph, options);
      EXPECT_EQ(again->launches[0].schedule, chosen->launches[0].schedule);
    }
  }
}

}  // namespace
}  // namespace braze
