// Kernels by the loop tree: what it serves, that it is right, and what it takes.
#include <gtest/gtest.h>

#include <cmath>

#include "compiler/loops/tile_loops.h"
#include "ir/code/text.h"
#include "ir/support/clocks.h"
#include "ir/support/text.h"
#include "ir/tile/verify.h"
#include "tests/compiler/loops.h"
#include "tests/compiler/run.h"
#include "tests/fuzz/generator.h"

namespace braze {
namespace {

/// Verifies the tile programs of all kernels.
CompileOptions verifying() {
  CompileOptions options;
  options.observer = [](const CompilePhase& phase) {
    if (phase.stage != "tile") return;
    for (const Diagnostic& finding : verify(parse_tile(phase.text(), "tile")))
      ADD_FAILURE() << finding.to_string() << "\n" << phase.text();
  };
  return options;
}

// What random graphs seldom have: tiles that are turned, several vectors a thread, tails of sizes,
// outputs that take over an input.
constexpr const char* kGraphs[] = {
    R"(graph @transposed(%x: f32[70, 100]) {
      %y = transpose %x {permutation: [1, 0]} : f32[100, 70]
      %z = exp %y : f32[100, 70]
      return %z
    })",
    R"(graph @symmetric(%x: f32[65, 65]) {
      %t = transpose %x {permutation: [1, 0]} : f32[65, 65]
      %y = add %x, %t : f32[65, 65]
      return %y
    })",
    R"(graph @heads(%x: bf16[3, 40, 4, 33]) {
      %y = transpose %x {permutation: [0, 2, 3, 1]} : bf16[3, 4, 33, 40]
      %z = silu %y : bf16[3, 4, 33, 40]
      return %z
    })",
    R"(graph @outer_lanes(%x: f32[48, 64], %y: f32[48, 64], %z: f32[64, 48]) {
      %a = add %x, %y : f32[48, 64]
      %t = transpose %a {permutation: [1, 0]} : f32[64, 48]
      %b = add %t, %z : f32[64, 48]
      return %b
    })",
    R"(symbol m: 1..1000
    symbol n: 1..1000
    graph @sizes(%x: f32[m, n], %b: f32[n]) {
      %t = broadcast %b {axes: [1]} : f32[m, n]
      %y = add %x, %t : f32[m, n]
      %z = sub %x, %t : f32[m, n]
      return %y, %z
    })",
    R"(graph @long(%x: bf16[200, 1003], %b: bf16[1003]) {
      %t = broadcast %b {axes: [1]} : bf16[200, 1003]
      %y = mul %x, %t : bf16[200, 1003]
      %z = tanh %y : bf16[200, 1003]
      return %z
    })",
    R"(graph @joined(%x: f32[40, 31], %y: f32[40, 50]) {
      %a = concat %x, %y {axis: 1} : f32[40, 81]
      %b = slice %a {starts: [1, 2], limits: [39, 80], strides: [1, 2]} : f32[38, 39]
      return %b
    })",
    R"(graph @picked(%x: f32[100, 20], %i: i64[64]) {
      %first = constant 0 : i64[]
      %last = constant 99 : i64[]
      %c = clamp %i, %first, %last : i64[64]
      %a = gather %x, %c {axis: 0} : f32[64, 20]
      %b = exp %a : f32[64, 20]
      return %b
    })",
    R"(graph @updated(%p: f32[3000], %m: f32[3000], %g: f32[3000]) {
      %n = fma %m, %g, %m : f32[3000]
      %q = sub %p, %n : f32[3000]
      %r = add %q, %m : f32[3000]
      return %n as "m" updates %m, %q as "p" updates %p, %r as "r"
    })",
    R"(graph @one(%x: f32[], %y: f32[1, 1]) {
      %a = reshape %y : f32[]
      %b = add %x, %a : f32[]
      return %b
    })",
    R"(graph @nothing(%x: f32[0, 8]) {
      %a = exp %x : f32[0, 8]
      return %a
    })",
};

TEST(LoopTree, ServesFixedGraphs) {
  for (const char* device : {"sim:cpu", "sim:sm_90"}) {
    for (const char* text : kGraphs) {
      const Graph graph = testing::parse(text);
      EXPECT_TRUE(
          testing::agrees(graph, fuzz::random_inputs(graph, 7), Device(device), verifying()))
          << device;
    }
  }
}

// A softmax of M rows of N, a norm with scale and bias, sums of rows and of columns of what lies
// between other axes, and a logistic loss with what follows it.
constexpr const char* kReductions[] = {
    R"(graph @softmax(%x: T[M, N]) {
      %f = convert %x : f32[M, N]
      %m = reduce max %f {axes: [1]} : f32[M]
      %mb = broadcast %m {axes: [0]} : f32[M, N]
      %c = sub %f, %mb : f32[M, N]
      %e = exp %c : f32[M, N]
      %s = reduce sum %e {axes: [1]} : f32[M]
      %sb = broadcast %s {axes: [0]} : f32[M, N]
      %q = div %e, %sb : f32[M, N]
      %y = convert %q : T[M, N]
      return %y
    })",
    R"(graph @norm(%x: T[M, N], %g: T[N]) {
      %f = convert %x : f32[M, N]
      %s = reduce sum %f {axes: [1]} : f32[M]
      %k = constant 0.01 : f32[]
      %kb = broadcast %k {axes: []} : f32[M]
      %mu = mul %s, %kb : f32[M]
      %mb = broadcast %mu {axes: [0]} : f32[M, N]
      %c = sub %f, %mb : f32[M, N]
      %c2 = mul %c, %c : f32[M, N]
      %v = reduce sum %c2 {axes: [1]} : f32[M]
      %vk = fma %v, %kb, %kb : f32[M]
      %r = rsqrt %vk : f32[M]
      %rb = broadcast %r {axes: [0]} : f32[M, N]
      %n = mul %c, %rb : f32[M, N]
      %gf = convert %g : f32[N]
      %gb = broadcast %gf {axes: [1]} : f32[M, N]
      %ng = mul %n, %gb : f32[M, N]
      %y = convert %ng : T[M, N]
      return %y, %mu
    })",
    R"(graph @logsumexp(%x: T[M, N]) {
      %f = convert %x : f32[M, N]
      %m = reduce max %f {axes: [1]} : f32[M]
      %mb = broadcast %m {axes: [0]} : f32[M, N]
      %c = sub %f, %mb : f32[M, N]
      %e = exp %c : f32[M, N]
      %s = reduce sum %e {axes: [1]} : f32[M]
      %l = log %s : f32[M]
      %y = add %l, %m : f32[M]
      return %y
    })",
    R"(graph @columns(%x: T[N, M]) {
      %f = convert %x : f32[N, M]
      %s = reduce sum %f {axes: [0]} : f32[M]
      %y = exp %s : f32[M]
      return %y, %s
    })",
    R"(graph @softmax_of_columns(%x: T[N, M]) {
      %f = convert %x : f32[N, M]
      %m = reduce max %f {axes: [0]} : f32[M]
      %mb = broadcast %m {axes: [1]} : f32[N, M]
      %c = sub %f, %mb : f32[N, M]
      %e = exp %c : f32[N, M]
      %s = reduce sum %e {axes: [0]} : f32[M]
      %sb = broadcast %s {axes: [1]} : f32[N, M]
      %q = div %e, %sb : f32[N, M]
      return %q
    })",
    R"(graph @middle(%x: T[2, N, 3, M]) {
      %f = convert %x : f32[2, N, 3, M]
      %s = reduce sum %f {axes: [1]} : f32[2, 3, M]
      %t = reduce max %f {axes: [0, 2, 3]} : f32[N]
      return %s, %t
    })",
    R"(graph @all(%x: T[M, N]) {
      %f = convert %x : f32[M, N]
      %s = reduce sum %f {axes: [0, 1]} : f32[]
      return %s
    })",
};

Graph with_sizes(std::string text, const std::string& rows, const std::string& length,
                 const std::string& dtype) {
  const auto put = [&](const std::string& word, const std::string& value) {
    for (size_t at = 0; (at = text.find(word, at)) != text.npos; at += value.size())
      text.replace(at, word.size(), value);
  };
  put("M", rows);
  put("N", length);
  put("T[", dtype + "[");
  std::string symbols;
  if (rows == "m") symbols += "symbol m: 1..40\n";
  if (length == "n") symbols += "symbol n: 1..1003\n";
  return testing::parse(symbols + text);
}

TEST(LoopTree, ServesReductions) {
  struct Size {
    const char *rows, *length, *dtype;
  };
  const Size sizes[] = {{"3", "5", "f32"},     {"40", "8", "bf16"},   {"37", "64", "f32"},
                        {"5", "1000", "bf16"}, {"3", "1003", "bf16"}, {"130", "100", "f32"},
                        {"m", "n", "f32"},     {"70", "2", "f32"},    {"2", "4099", "f32"},
                        {"6", "1", "bf16"}};
  for (const char* device : {"sim:cpu", "sim:sm_80", "sim:sm_90"}) {
    for (const char* text : kReductions)
      for (const Size& size : sizes) {
        SCOPED_TRACE(fmt::format("{} rows of {} {}", size.rows, size.length, size.dtype));
        const Graph graph = with_sizes(text, size.rows, size.length, size.dtype);
        CompileOptions options = verifying();
        options.by_cost = false;
        EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, 11), Device(device), options))
            << device;
      }
  }
}

// Rows that no block can keep: a running maximum and the sum that follows it are one walk, also
// where a row has nothing but -inf, or a NaN.
TEST(LoopTree, WalksLongRowsOnce) {
  for (const char* dtype : {"f32", "bf16"})
    for (const char* length : {"40000", "33001"}) {
      const Graph graph = with_sizes(kReductions[0], "4", length, dtype);
      std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 3);
      const int64_t columns = inputs[0].shape()[1];
      for (int64_t i = 0; i < columns; ++i) inputs[0].set_double(i, -INFINITY);
      for (int64_t i = 0; i < columns - 7; ++i) inputs[0].set_double(columns + i, -INFINITY);
      inputs[0].set_double(2 * columns + 1234, NAN);
      CompileOptions options = verifying();
      options.by_cost = false;
      std::string tree;
      const auto verify_tiles = options.observer;
      options.observer = [&](const CompilePhase& phase) {
        if (phase.stage == "loops") tree += phase.text();
        verify_tiles(phase);
      };
      EXPECT_TRUE(testing::agrees(graph, inputs, Device("sim:sm_80"), options));
      EXPECT_NE(tree.find("rescale"), tree.npos) << tree;
    }
}

// Means and sums of squares around them, of rows and of columns; a sum of products with another
// tensor.
constexpr const char* kMoments[] = {
    R"(graph @rows(%x: T[M, N]) {
      %f = convert %x : f32[M, N]
      %n = constant N : f32[]
      %s = reduce sum %f {axes: [1]} : f32[M]
      %m = div %s, %n : f32[M]
      %mb = broadcast %m {axes: [0]} : f32[M, N]
      %c = sub %f, %mb : f32[M, N]
      %c2 = mul %c, %c : f32[M, N]
      %q = reduce sum %c2 {axes: [1]} : f32[M]
      %v = div %q, %n : f32[M]
      return %m, %v
    })",
    R"(graph @columns(%x: T[N, M]) {
      %f = convert %x : f32[N, M]
      %n = constant N : f32[]
      %s = reduce sum %f {axes: [0]} : f32[M]
      %m = div %s, %n : f32[M]
      %mb = broadcast %m {axes: [1]} : f32[N, M]
      %c = sub %f, %mb : f32[N, M]
      %c2 = mul %c, %c : f32[N, M]
      %q = reduce sum %c2 {axes: [0]} : f32[M]
      %v = div %q, %n : f32[M]
      return %m, %v
    })",
    R"(graph @normalized(%x: T[N, M], %w: T[N, M]) {
      %f = convert %x : f32[N, M]
      %g = convert %w : f32[N, M]
      %n = constant N : f32[]
      %s = reduce sum %f {axes: [0]} : f32[M]
      %m = div %s, %n : f32[M]
      %mb = broadcast %m {axes: [1]} : f32[N, M]
      %c = sub %f, %mb : f32[N, M]
      %p = mul %g, %c : f32[N, M]
      %q = reduce sum %p {axes: [0]} : f32[M]
      %qb = broadcast %q {axes: [1]} : f32[N, M]
      %y = add %c, %qb : f32[N, M]
      return %y
    })",
};

// Lines that nothing keeps are walked once for a mean and what follows it, in chunks of unlike
// lengths too. Every line has numbers of its own kind: random ones, large ones close to each other,
// an inf, a NaN, and equal ones.
TEST(LoopTree, FollowsMeansInOneWalk) {
  struct Case {
    const char *device, *text, *lines, *length, *dtype;
    bool chunks;
  };
  const Case cases[] = {
      {"sim:cpu", kMoments[0], "6", "33001", "f32", true},
      {"sim:cpu", kMoments[1], "40", "5003", "f32", true},
      {"sim:cpu", kMoments[2], "33", "2003", "bf16", false},
      {"sim:sm_80", kMoments[0], "6", "40003", "f32", true},
      {"sim:sm_80", kMoments[0], "7", "40000", "bf16", true},
      {"sim:sm_90", kMoments[1], "132", "1003", "f32", true},
      {"sim:sm_90", kMoments[1], "40", "2003", "bf16", true},
      {"sim:sm_90", kMoments[2], "131", "1003", "f32", false},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(fmt::format("{}: {} lines of {} {}", c.device, c.lines, c.length, c.dtype));
    const Graph graph = with_sizes(c.text, c.lines, c.length, c.dtype);
    std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 5);
    HostTensor& x = inputs[0];
    const int64_t lines = std::stoll(c.lines), length = std::stoll(c.length);
    const bool rows = x.shape()[0] == lines;
    const auto at = [&](int64_t line, int64_t i) {
      return rows ? line * length + i : i * lines + line;
    };
    const double large = 4096;
    for (int64_t i = 0; i < length; ++i) {
      x.set_double(at(1, i), large + static_cast<double>((i * 7919) % 64) / 64);
      x.set_double(at(4, i), 0.3);
    }
    x.set_double(at(2, length / 2), INFINITY);
    x.set_double(at(3, length - 1), NAN);
    CompileOptions options = verifying();
    options.by_cost = false;
    std::string tree;
    const auto verify_tiles = options.observer;
    options.observer = [&](const CompilePhase& phase) {
      if (phase.stage == "loops") tree += phase.text();
      verify_tiles(phase);
    };
    const Device device(c.device);
    Target target = device.target();
    if (target.kind == TargetKind::Cpu) target.l2_bytes = 32 << 10;  // else nothing is far from it
    const auto run = [&] {
      tree.clear();
      return testing::run(std::make_shared<const Program>(compile(graph, target, options)), device,
                          inputs);
    };
    const auto once = run();
    const CheckResult result = testing::check(graph, inputs, once);
    EXPECT_TRUE(result.ok) << result.summary();
    EXPECT_NE(tree.find(" shift "), tree.npos) << tree;
    EXPECT_EQ(tree.find("then phase") != tree.npos, c.chunks) << tree;
    options.precision = Precision::Strict;
    const auto strict = run();
    EXPECT_EQ(tree.find(" shift "), tree.npos) << tree;
    if (graph.outputs().size() < 2) continue;
    // The bound of a sum is wide where numbers are large. The squares about the mean are much
    // closer to those in f64, with one walk and with two.
    for (const int64_t line : {0, 1, 4, 5}) {
      double mean = 0, variance = 0;
      for (int64_t i = 0; i < length; ++i) mean += x.get_double(at(line, i));
      mean /= static_cast<double>(length);
      for (int64_t i = 0; i < length; ++i) {
        const double apart = x.get_double(at(line, i)) - mean;
        variance += apart * apart;
      }
      variance /= static_cast<double>(length);
      for (const auto* outputs : {&once, &strict})
        EXPECT_NEAR((*outputs)[1].get_double(line), variance, 4e-6 * variance + 1e-11)
            << "line " << line;
    }
    for (const int64_t line : {2, 3}) EXPECT_TRUE(std::isnan(once[1].get_double(line)));
  }
}

// No term, one term, fewer terms than threads or than chunks.
TEST(LoopTree, FollowsMeansOfFewTerms) {
  const Graph graph = testing::parse(R"(
symbol n: 0..1003
graph @variance(%x: f32[n, 36]) {
  %size = size {value: n} : i64[]
  %n = convert %size : f32[]
  %s = reduce sum %x {axes: [0]} : f32[36]
  %m = div %s, %n : f32[36]
  %mb = broadcast %m {axes: [1]} : f32[n, 36]
  %c = sub %x, %mb : f32[n, 36]
  %c2 = mul %c, %c : f32[n, 36]
  %q = reduce sum %c2 {axes: [0]} : f32[36]
  return %q
})");
  const struct {
    const char *device, *schedule;
  } schedules[] = {
      {"sim:sm_80",
       "split i 32 padded; whole i.2; on i grid; split r 8 padded; whole r.2; split r.2 8 padded; "
       "whole r.3; merge r r.2; chunk r 4 phase; last i; bind %s_part (w1:4 r1:2 | l1:32); bind "
       "%s_count "
       "(w1:4 r1:2 | l1:32); bind %q_slope_part (w1:4 r1:2 | l1:32); bind %q_part (w1:4 r1:2 | "
       "l1:32); bind %s (w1:4 | l1:32); bind %q (w1:4 | l1:32)"},
      {"sim:sm_90",
       "on i grid; split r 256 padded; whole r.2; split r.2 256 padded; whole r.3; merge r r.2; "
       "bind %s (w1:2 l1:32 r1:4); bind %s_count (w1:2 l1:32 r1:4); bind %q_slope (w1:2 l1:32 "
       "r1:4); bind %q (w1:2 l1:32 r1:4)"},
      {"sim:cpu",
       "split i 8 padded; whole i.2; on i grid; split r 4 padded; whole r.2; split r.2 4 padded; "
       "whole r.3; merge r r.2; chunk r 3 phase; last i"},
      {"sim:cpu",
       "on i grid; split r 8 padded; whole r.2; split r.2 8 padded; whole r.3; merge r r.2"},
  };
  for (const auto& [name, schedule] : schedules) {
    const Device device(name);
    CompileOptions options = verifying();
    options.by_cost = false;
    options.schedules[testing::compile_for(device, graph, options)->launches[0].name] = schedule;
    for (const int64_t length : {0, 1, 2, 7, 31, 1003}) {
      SCOPED_TRACE(fmt::format("{} terms on {} by {}", length, name, schedule));
      std::vector<HostTensor> inputs = {HostTensor(DType::F32, {length, 36})};
      for (int64_t i = 0; i < inputs[0].numel(); ++i)
        inputs[0].set_double(i, 3e3 + 0.25 * static_cast<double>((i * 7919) % 64));
      EXPECT_TRUE(testing::agrees(graph, inputs, device, options));
    }
  }
}

// A sum of powers follows a maximum that passes through a choice: rows of -inf, with an inf, with a
// NaN and of finite numbers, of which the greatest comes late.
TEST(LoopTree, WalksRowsOfGuardedMaximaOnce) {
  const Graph graph = testing::parse(R"(
graph @logsumexp(%x: f32[6, 1500]) {
  %m = reduce max %x {axes: [1]} : f32[6]
  %a = abs %m : f32[6]
  %inf = constant inf : f32[]
  %finite = lt %a, %inf : bool[6]
  %0 = constant 0 : f32[]
  %g = select %finite, %m, %0 : f32[6]
  %gb = broadcast %g {axes: [0]} : f32[6, 1500]
  %d = sub %x, %gb : f32[6, 1500]
  %e = exp %d : f32[6, 1500]
  %s = reduce sum %e {axes: [1]} : f32[6]
  %l = log %s : f32[6]
  %y = add %l, %g : f32[6]
  return %y
})");
  std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 3);
  for (int64_t i = 0; i < 6 * 1500; ++i) inputs[0].set_double(i, 0.01 * double(i % 1500) - 90);
  for (int64_t i = 0; i < 1500; ++i) inputs[0].set_double(i, -INFINITY);
  for (int64_t i = 0; i < 1400; ++i) inputs[0].set_double(1500 + i, -INFINITY);
  inputs[0].set_double(2 * 1500 + 1234, INFINITY);
  inputs[0].set_double(3 * 1500 + 700, NAN);
  inputs[0].set_double(4 * 1500 + 1499, 88.5);
  for (const char* name : {"sim:sm_80", "sim:sm_90"}) {
    const Device device(name);
    CompileOptions options;
    options.schedules[testing::compile_for(device, graph)->launches[0].name] =
        "on i grid; split r 256 padded; whole r.2; split r.2 256 padded; whole r.3; merge r r.2; "
        "bind %m (w1:2 l1:32 r1:4); bind %s (w1:2 l1:32 r1:4)";
    EXPECT_TRUE(testing::agrees(graph, inputs, device, options)) << name;
  }
}

TEST(LoopTree, ServesRandomGraphs) {
  for (const char* device : {"sim:cpu", "sim:sm_80", "sim:sm_90"}) {
    for (uint64_t seed = 0; seed < 200; ++seed) {
      const Graph graph = fuzz::random_graph(seed, {.max_elements = 512, .max_products = 4096});
      EXPECT_NO_THROW(compile(graph, Device(device).target(), verifying()))
          << device << " " << seed;
    }
  }
}

// How long it takes from a Fusion to a tile program; printed, never judged.
TEST(LoopTree, TakesMicroseconds) {
  constexpr int kTimes = 200;
  for (const char* device : {"sim:cpu", "sim:sm_90"})
    for (const char* text : kGraphs) {
      const Graph graph = testing::parse(text);
      if (graph.name() == "nothing") continue;  // is no kernel
      const LoopForms forms(graph);
      const Fusion fusion = testing::everything(forms);
      const Target target = Device(device).target();
      const TilingRequest request{forms, fusion, target, "k"};
      ThreadClock clock;
      for (int i = 0; i < kTimes; ++i) build_loops(forms, fusion, "k");
      const double built = clock.lap();
      for (int i = 0; i < kTimes; ++i) schedule(build_loops(forms, fusion, "k"), target);
      const double scheduled = clock.lap() - built;
      size_t values = 0;
      for (int i = 0; i < kTimes; ++i)
        values += std::get<TreeTiling>(tile_loops(request)).tiled.program.values.size();
      const double all = clock.lap();
      EXPECT_GT(values, 0u);
      printf("%-10s @%-12s build %3.0f us, rules %3.0f, emission %3.0f\n", device,
             graph.name().c_str(), built / kTimes * 1e6, scheduled / kTimes * 1e6,
             (all - built - scheduled) / kTimes * 1e6);
    }
}

}  // namespace
}  // namespace braze
