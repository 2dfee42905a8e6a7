// Rows that the blocks of a cluster share, by given schedules: every kind of pass over a row, on
// the simulator, which also sees races and late blocks, or on the GPU under test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "ir/code/text.h"
#include "ir/support/text.h"
#include "ir/tile/verify.h"
#include "tests/compiler/run.h"
#include "tests/fuzz/generator.h"

namespace braze {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Row {
  std::string_view name;
  std::string_view graph;  // over rows of N elements
};

constexpr Row kRows[] = {
    {"softmax", R"(graph @main(%x: f32[3, N]) {
  %m = reduce max %x {axes: [1]} : f32[3]
  %mb = broadcast %m {axes: [0]} : f32[3, N]
  %c = sub %x, %mb : f32[3, N]
  %e = exp %c : f32[3, N]
  %s = reduce sum %e {axes: [1]} : f32[3]
  %sb = broadcast %s {axes: [0]} : f32[3, N]
  %y = div %e, %sb : f32[3, N]
  return %y
})"},
    {"softmax_bf16", R"(graph @main(%x: bf16[3, N]) {
  %m = reduce max %x {axes: [1]} : bf16[3]
  %mb = broadcast %m {axes: [0]} : bf16[3, N]
  %c = sub %x, %mb : bf16[3, N]
  %e = exp %c : bf16[3, N]
  %s = reduce sum %e {axes: [1]} : bf16[3]
  %sb = broadcast %s {axes: [0]} : bf16[3, N]
  %y = div %e, %sb : bf16[3, N]
  return %y
})"},
    {"layer_norm", R"(graph @main(%x: f32[3, N], %g: f32[N], %n: f32[]) {
  %s = reduce sum %x {axes: [1]} : f32[3]
  %mean = mul %s, %n : f32[3]
  %mb = broadcast %mean {axes: [0]} : f32[3, N]
  %d = sub %x, %mb : f32[3, N]
  %d2 = mul %d, %d : f32[3, N]
  %v = reduce sum %d2 {axes: [1]} : f32[3]
  %w = abs %v : f32[3]
  %vb = broadcast %w {axes: [0]} : f32[3, N]
  %xn = mul %d, %vb : f32[3, N]
  %gb = broadcast %g {axes: [1]} : f32[3, N]
  %y = mul %xn, %gb : f32[3, N]
  return %y, %mean
})"},
    {"log_sum_exp", R"(graph @main(%x: f32[3, N]) {
  %m = reduce max %x {axes: [1]} : f32[3]
  %mb = broadcast %m {axes: [0]} : f32[3, N]
  %c = sub %x, %mb : f32[3, N]
  %e = exp %c : f32[3, N]
  %s = reduce sum %e {axes: [1]} : f32[3]
  %l = log %s : f32[3]
  %y = add %l, %m : f32[3]
  return %y
})"},
    {"scaled", R"(graph @main(%x: f32[3, N], %r: f32[3, N]) {
  %h = add %x, %r : f32[3, N]
  %a = abs %h : f32[3, N]
  %m = reduce max %a {axes: [1]} : f32[3]
  %mb = broadcast %m {axes: [0]} : f32[3, N]
  %q = div %h, %mb : f32[3, N]
  %y = convert %q : bf16[3, N]
  return %y, %m, %h
})"},
    {"first_greatest", R"(graph @main(%x: f32[3, N]) {
  %i = argmax %x {axis: 1} : i64[3]
  return %i
})"},
    {"integers", R"(graph @main(%x: i64[3, N], %b: bool[3, N]) {
  %s = reduce sum %x {axes: [1]} : i64[3]
  %sb = broadcast %s {axes: [0]} : i64[3, N]
  %d = sub %x, %sb : i64[3, N]
  %any = reduce or %b {axes: [1]} : bool[3]
  %ab = broadcast %any {axes: [0]} : bool[3, N]
  %y = select %ab, %d, %x : i64[3, N]
  return %y
})"},
};

Graph row_graph(const Row& row, const std::string& length, const std::string& rows = "3") {
  std::string text = length == "n" ? "symbol n: 1..1003\n" : "";
  text += row.graph;
  for (size_t at = 0; (at = text.find("[3", at)) != text.npos;) text.replace(++at, 1, rows);
  for (size_t at = 0; (at = text.find("N]", at)) != text.npos;) text.replace(at, 1, length);
  return testing::parse(text);
}

struct Shape {
  int64_t blocks, threads, vector;
};

size_t count(const std::string& text, const std::string& what) {
  size_t out = 0;
  for (size_t at = 0; (at = text.find(what, at)) != text.npos; at += what.size()) ++out;
  return out;
}

// Steps for a first tree of rows: a row is a tile, which the blocks of a cluster share.
std::string steps(const std::string& tree, const Shape& shape, int64_t length, bool on_grid) {
  constexpr std::string_view kLoop = "stream ";
  const int64_t unit = shape.blocks * shape.threads * shape.vector;
  const int64_t tile = (length + unit - 1) / unit * unit;
  std::string out = on_grid ? "on i grid; " : "";
  std::set<std::string> axes;
  for (size_t at = 0; (at = tree.find(kLoop, at)) != tree.npos; ++at) {
    const size_t name = at + kLoop.size();
    axes.insert(tree.substr(name, tree.find(' ', name) - name));
  }
  for (const std::string& along : axes) {
    const bool covered = tree.find(fmt::format("axis {}: {}\n", along, tile)) != tree.npos;
    const size_t loops =
        count(tree, "stream " + along + " {") + count(tree, "parallel " + along + " {");
    for (size_t n = 1; n <= loops; ++n)
      out += covered
                 ? fmt::format("whole {}; ", along)
                 : fmt::format("split {0}.{1} {2} padded; whole {0}.{3}; ", along, n, tile, n + 1);
  }
  std::string layout;
  const auto digit = [&](char kind, int64_t stride, int64_t extent) {
    if (extent > 1) layout += fmt::format(" {}{}:{}", kind, stride, extent);
  };
  digit('r', shape.vector, tile / unit);
  digit('b', 1, shape.blocks);
  digit('w', 1, shape.threads / 32);
  digit('l', 1, 32);
  digit('r', 1, shape.vector);
  for (size_t at = 0; (at = tree.find("[i] = ", at)) != tree.npos; ++at) {
    const size_t value = tree.rfind('%', at);
    out += fmt::format("bind {} ({}); ", tree.substr(value, at - value), layout.substr(1));
  }
  return out.substr(0, out.size() - 2);
}

// Such steps for every kernel of the graph that has rows.
CompileOptions with_clusters(const Graph& graph, const Target& target, const Shape& shape,
                             int64_t length, bool on_grid = true) {
  CompileOptions options;
  std::map<std::string, std::string> schedules;
  options.observer = [&](const CompilePhase& phase) {
    if (phase.stage != "unscheduled") return;
    const std::string tree = phase.text();
    if (tree.find("stream ") != std::string::npos)
      schedules[std::string(phase.kernel)] = steps(tree, shape, length, on_grid);
  };
  compile(graph, target, options);
  EXPECT_FALSE(schedules.empty());
  return {.schedules = schedules};
}

TEST(Clusters, RowsAgree) {
  const Device device = testing::gpu_or("sim:sm_90");
  const Shape shapes[] = {{2, 32, 1}, {4, 64, 4}, {8, 32, 2}, {4, 128, 1}};
  size_t seed = 0;
  for (const Row& row : kRows) {
    for (const std::string length : {"2", "7", "256", "1003", "n"}) {
      const Graph graph = row_graph(row, length);
      const Shape& shape = shapes[seed++ % std::size(shapes)];
      SCOPED_TRACE(fmt::format("{} of {}, {} blocks", row.name, length, shape.blocks));
      const int64_t most = length == "n" ? 1003 : std::stoll(length);
      const auto options = with_clusters(graph, device.target(), shape, most);
      EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, seed), device, options));
    }
  }
}

// One row after the other: the exchanges of a loop use their places again.
TEST(Clusters, RowsInALoop) {
  const Device device = testing::gpu_or("sim:sm_90");
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.name);
    const Graph graph = row_graph(row, "100");
    const auto options = with_clusters(graph, device.target(), {4, 32, 1}, 100, /*on_grid=*/false);
    EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, 5), device, options));
  }
}

// What all blocks hold, one stores.
TEST(Clusters, OneBlockStoresResults) {
  const Graph graph = row_graph(kRows[3], "1003");
  const Target target = find_target("sm_90a").value();
  CompileOptions options = with_clusters(graph, target, {4, 64, 1}, 1003);
  std::string kernel;
  options.observer = [&](const CompilePhase& phase) {
    if (phase.stage == "kernel") kernel = phase.text();
  };
  compile(graph, target, options);
  EXPECT_THAT(kernel, HasSubstr("cluster(rank: 4)"));
  EXPECT_THAT(kernel, HasSubstr("mask (tid == 0 and rank == 0)"));
}

TEST(Clusters, ChosenForRowsThatAreReadAgain) {
  const auto chosen = [](const Graph& graph, const std::string& machine) {
    std::string text;
    CompileOptions options;
    options.observer = [&](const CompilePhase& phase) {
      if (phase.stage == "tile") text += phase.text();
    };
    compile(graph, find_target(machine).value(), options);
    return text;
  };
  // With few rows other blocks would have nothing to do, and the passes become kernels.
  const auto rows = [](size_t row, const std::string& length) {
    return row_graph(kRows[row], length, "4096");
  };
  EXPECT_THAT(chosen(rows(0, "50257"), "sm_90a"), HasSubstr(" cluster 8 "));
  EXPECT_THAT(chosen(rows(0, "50257"), "sm_80"), Not(HasSubstr(" cluster ")));  // has none
  EXPECT_THAT(chosen(rows(0, "4096"), "sm_90a"), Not(HasSubstr(" cluster ")));
  EXPECT_THAT(chosen(rows(5, "50257"), "sm_90a"), Not(HasSubstr(" cluster ")));
  // A row longer than the registers of a cluster is walked by one, if it is walked more than once.
  EXPECT_THAT(chosen(rows(0, "1000003"), "sm_90a"), HasSubstr(" cluster 8 "));
  EXPECT_THAT(chosen(rows(5, "1000003"), "sm_90a"), Not(HasSubstr(" cluster ")));
}

void expect_error(const std::function<void()>& f, const std::string& message) {
  try {
    f();
    ADD_FAILURE() << "no error: " << message;
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(message));
  }
}

TEST(Clusters, SchedulesThatDoNotFit) {
  const Graph graph = row_graph(kRows[0], "100");
  const auto compile_with = [&](const std::string& machine, const Shape& shape) {
    const Target target = find_target(machine).value();
    compile(graph, target, with_clusters(graph, target, shape, 100));
  };
  expect_error([&] { compile_with("sm_80", {2, 32, 1}); }, "sm_80 has no clusters");
  expect_error(
      [&] {
        compile_with("sm_90a", {16, 32, 1});
      },
      "a cluster of sm_90a has at most 8 blocks, not 16");
}

// --- Programs by hand ---------------------------------------------------------------------------

TileProgram tiles(const std::string& attributes, const std::string& layouts,
                  const std::string& body) {
  return parse_tile("braze 1 tile\nkernel @k(%x: in f32[128], %y: out f32[128]) " + attributes +
                        " {\n" + layouts + "\n phase grid() {\n%a = load %x[d0] : f32[128]\n" +
                        body + "\n}\n}",
                    "test");
}

TEST(Clusters, LayoutsThatTheKernelDoesNotHave) {
  const auto findings = [](const std::string& attributes, const std::string& layout) {
    const auto list = verify(tiles(attributes, "layout @t = " + layout, "store %a, %y[d0]"));
    return join(list, "\n", [](const Diagnostic& d) { return d.to_string(); });
  };
  EXPECT_EQ(findings("warps 2 cluster 2", "(b1:2 w1:2 l1:32)"), "");
  EXPECT_THAT(findings("warps 2", "(b1:2 w1:2 l1:32)"), HasSubstr("T22: layout @t uses 2 blocks"));
  EXPECT_THAT(findings("warps 1 cluster 2", "(b1:2 w1:2 l1:32)"), HasSubstr("uses 2 warps"));
  EXPECT_THAT(findings("warps 2 cluster 4", "(b1:2 b1:2 l1:32)"),
              HasSubstr("two digits count the same blocks"));
}

TEST(Clusters, MovesBetweenBlocks) {
  const Target target = find_target("sm_90a").value();
  const std::string layouts =
      "layout @t = (b1:2 w1:2 l1:32)\nlayout @u = (b1:2 | w1:2 l1:32)\n"
      "layout @v = (w1:2 l1:32 | b1:2)";
  expect_error(
      [&] {
        compile(tiles("warps 2 cluster 2", layouts,
                      "%b = reshape %a : f32[2, 64]\n%c = transpose %b perm(1, 0) : f32[64, 2]\n"
                      "store %c, %y[2*d0 + d1]"),
                target);
      },
      "would move elements between blocks");
  expect_error(
      [&] {
        compile(tiles("warps 2 cluster 2", layouts,
                      "%s = buffer f32[128]\nstore %a, %s[127 - d0]\n"
                      "%b = load %s[d0] : f32[128]\nstore %b, %y[d0]"),
                target);
      },
      "threads of other blocks would access it");
}

}  // namespace
}  // namespace braze
