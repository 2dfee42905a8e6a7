// What compiling takes grows with the graph, not with its square, and what repeats is done once.
// Work is counted, never timed: kernels that the search tries and prices, parts of bodies, codes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "compiler/fusion/inlined_size.h"
#include "compiler/fusion/partition.h"
#include "compiler/fusion/reasons.h"
#include "compiler/passes/split_concats.h"
#include "ir/program/text.h"
#include "ir/support/text.h"
#include "ir/support/trace.h"
#include "tests/compiler/run.h"
#include "tests/fuzz/cascades.h"
#include "tests/fuzz/generator.h"

namespace braze {
namespace {

using testing::parse;

// A graph after the passes, and its kernels.
struct Parts {
  Graph graph;
  Partition partition;
};

Parts parts_of(const Graph& graph) {
  Parts out;
  CompileOptions options;
  options.observer = [&](const CompilePhase& phase) {
    if (phase.partition) out = {*phase.graph, *phase.partition};
  };
  compile(graph, Device("sim:cpu").target(), options);
  return out;
}

std::string returned(int count, const std::string& name) {
  std::string text = "  return ";
  for (int i = 0; i < count; ++i) text += fmt::format("{}%{}{}", i ? ", " : "", name, i);
  return text + "\n}";
}

// --- Many kernels around one value --------------------------------------------------------------

Graph outputs_of_one_input(int count) {
  std::string text = "graph @main(%x: f32[8]) {\n";
  for (int i = 0; i < count; ++i)
    text += fmt::format("  %c{0} = constant {0}.5 : f32[]\n  %y{0} = mul %x, %c{0} : f32[8]\n", i);
  return parse(text + returned(count, "y"));
}

TEST(Growth, EachOfManyReadersOfAValueIsTriedWithFew) {
  constexpr size_t kFew = 64;
  const Partition small = parts_of(outputs_of_one_input(100)).partition;
  const Partition large = parts_of(outputs_of_one_input(400)).partition;
  EXPECT_LT(small.tried, kFew * 100);
  EXPECT_LT(large.tried, kFew * 400);
  EXPECT_LT(large.priced, 400u) << "most are equal";
}

TEST(Growth, ManyOutputsAreKernelsOfManyEach) {
  const Graph graph = outputs_of_one_input(300);
  const Partition partition = parts_of(graph).partition;
  EXPECT_GE(partition.fusions.size(), 3u);
  EXPECT_LE(partition.fusions.size(), 12u);
  for (const Fusion& fusion : partition.fusions)
    EXPECT_LE(fusion.inputs.size() + fusion.outputs.size(), 128u);
  EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, 1), "sim:cpu"));
}

// All of them read one value that costs too much to compute again.
TEST(Growth, ManyConsumersHaveReasons) {
  std::string text = "graph @main(%x: f32[64, 64]) {\n  %s = reduce sum %x {axes: [1]} : f32[64]\n";
  for (int i = 0; i < 100; ++i)
    text += fmt::format(
        "  %c{0} = constant {0}.5 : f32[]\n  %m{0} = mul %s, %c{0} : f32[64]\n"
        "  %e{0} = exp %m{0} : f32[64]\n  %y{0} = reduce sum %e{0} {{axes: [0]}} : f32[]\n",
        i);
  const Graph graph = parse(text + returned(100, "y"));
  const auto [passed, partition] = parts_of(graph);
  size_t edges = 0;
  for (const NodeId node : partition.fusions.front().nodes) edges += passed[node].operands.size();
  EXPECT_GT(edges, 0u);
  for (const EdgeReason& edge : partition.edges) EXPECT_NE(edge.code, nullptr);
  EXPECT_LT(partition.tried, 100u * 100u);
  EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, 1), "sim:cpu"));
}

// --- Bodies --------------------------------------------------------------------------------------

size_t most_operands(const Graph& graph) {
  size_t most = 0;
  for (size_t i = 0; i < graph.size(); ++i) most = std::max(most, graph[NodeId(i)].operands.size());
  return most;
}

TEST(Growth, NoElementIsChosenFromAllPartsOfALongConcat) {
  std::string text = "graph @main(%x: f32[3, 2]) {\n", parts;
  for (int i = 0; i < 300; ++i) {
    text +=
        fmt::format("  %c{0} = constant {0}.5 : f32[]\n  %m{0} = mul %x, %c{0} : f32[3, 2]\n", i);
    parts += fmt::format("{}%m{}", i ? ", " : "", i);
  }
  const Graph graph = parse(
      text + fmt::format("  %y = concat {} {{axis: 1}} : f32[3, 600]\n  return %y\n}}", parts));
  const auto [passed, partition] = parts_of(graph);
  EXPECT_LE(most_operands(passed), kMostParts);
  for (const Fusion& fusion : partition.fusions)
    EXPECT_LE(fusion.nodes.size(), passed.size() / 2) << "the parts are joined in one body again";
  EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, 1), "sim:cpu"));
}

// A concatenation of parts with sizes of their own.
Graph parts_of_sizes(int count) {
  std::string symbols, inputs, parts, extent;
  for (int i = 0; i < count; ++i) {
    symbols += fmt::format("symbol n{}: 0..5\n", i);
    inputs += fmt::format("{}%x{}: i32[n{}]", i ? ", " : "", i, i);
    parts += fmt::format("{}%x{}", i ? ", " : "", i);
    extent += fmt::format("{}n{}", i ? " + " : "", i);
  }
  return parse(
      fmt::format("{}graph @main({}) {{\n  %y = concat {} {{axis: 0}} : i32[{}]\n  return %y\n}}",
                  symbols, inputs, parts, extent));
}

TEST(Growth, PartsOfManySizes) {
  const Graph graph = parts_of_sizes(40);
  EXPECT_LE(most_operands(parts_of(graph).graph), kMostParts);
  EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, 1), "sim:cpu"));
  EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, 1), "cpu"));
}

// Where a part begins is the sum of all sizes before it. This sum is one number, and no lane adds
// the sizes again. `freeze` keeps LLVM from taking the sum apart at each use, in a time that grows
// with the square of the number of sizes.
TEST(Growth, WhereAPartBeginsIsOneNumber) {
  const Target target = *find_target("x86-64-v4");
  for (const int count : {40, 80, 160}) {
    std::string code;
    CompileOptions options;
    options.observer = [&](const CompilePhase& phase) {
      if (phase.stage == "llvm") code += phase.text();
    };
    compile(parts_of_sizes(count), target, options);
    const auto occurrences = [&](const std::string& what) {
      int out = 0;
      for (size_t at = 0; (at = code.find(what, at)) != std::string::npos; at += what.size()) ++out;
      return out;
    };
    EXPECT_LT(occurrences("add nsw <16 x i64>"), 16 * count);
    EXPECT_GE(occurrences("freeze i64"), count);
    EXPECT_LT(occurrences("\n"), 200 * count);
  }
}

// --- Many tensors of unlike sizes ----------------------------------------------------------------

// As gradients are clipped: all of them are scaled by one number that depends on all of them.
Graph scaled_by_norm(int count) {
  std::string inputs, sums, results, returned, total = "%s0";
  for (int i = 0; i < count; ++i) {
    const int extent = 100 + 7 * i;
    inputs += fmt::format("{}%g{}: f32[{}]", i ? ", " : "", i, extent);
    sums += fmt::format(
        "  %q{0} = mul %g{0}, %g{0} : f32[{1}]\n"
        "  %s{0} = reduce sum %q{0} {{axes: [0]}} : f32[]\n",
        i, extent);
    if (i > 0) {
      sums += fmt::format("  %t{0} = add {1}, %s{0} : f32[]\n", i, total);
      total = fmt::format("%t{}", i);
    }
    results += fmt::format(
        "  %b{0} = broadcast %all {{axes: []}} : f32[{1}]\n"
        "  %o{0} = mul %g{0}, %b{0} : f32[{1}]\n",
        i, extent);
    returned += fmt::format("{}%o{}", i ? ", " : "", i);
  }
  return parse(fmt::format("graph @main({}) {{\n{}  %all = sqrt {} : f32[]\n{}  return {}\n}}",
                           inputs, sums, total, results, returned));
}

// Each price is one first tree.
TEST(Growth, TreesOfUnlikeTensors) {
  std::vector<size_t> trees;
  for (const int count : {50, 100, 200}) {
    const Graph graph = scaled_by_norm(count);
    const Partition partition = parts_of(graph).partition;
    EXPECT_LE(partition.priced, 10 * graph.size());
    EXPECT_LE(partition.tried, 10 * graph.size());
    trees.push_back(partition.priced);
  }
  EXPECT_LT(trees[2], 5 * trees[0]);
  const Graph few = scaled_by_norm(9);
  EXPECT_TRUE(testing::agrees(few, fuzz::random_inputs(few, 1), "cpu"));
}

// Statements of the largest kernel.
size_t longest_kernel(const Graph& graph) {
  size_t longest = 0;
  CompileOptions options;
  options.observer = [&](const CompilePhase& phase) {
    if (phase.stage != "tile") return;
    const std::string text = phase.text();
    longest = std::max(longest, static_cast<size_t>(std::count(text.begin(), text.end(), '\n')));
  };
  compile(graph, Device("sim:cpu").target(), options);
  return longest;
}

// Each of the 49 neighbours would be computed where it is read.
TEST(Growth, CostlyNeighboursAreComputedOnce) {
  std::string text = "graph @main(%x: f32[14, 14]) {\n  %t = tanh %x : f32[14, 14]\n";
  std::string sum;
  for (int i = 0; i < 49; ++i) {
    text += fmt::format(
        "  %s{0} = slice %t {{starts: [{1}, {2}], limits: [{3}, {4}], strides: [1, 1]}} "
        ": f32[8, 8]\n",
        i, i / 7, i % 7, i / 7 + 8, i % 7 + 8);
    if (i > 0) text += fmt::format("  %a{0} = add {1}, %s{0} : f32[8, 8]\n", i, sum);
    sum = i > 0 ? fmt::format("%a{}", i) : "%s0";
  }
  const Graph graph = parse(text + "  return " + sum + "\n}");
  const auto [passed, partition] = parts_of(graph);
  EXPECT_EQ(partition.fusions.size(), 2u);
  EXPECT_TRUE(std::any_of(partition.edges.begin(), partition.edges.end(),
                          [](const EdgeReason& e) { return e.code == &reasons::kInlinedSize; }));
  EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, 1), "sim:cpu"));
}

// Each level interleaves two products of the level before it, so an element of the last level is
// chosen from the products of all paths that lead to it.
Graph interleaved_products(int levels) {
  std::string inputs, text, value = "x";
  for (int level = 0; level < levels; ++level) {
    const int extent = 1 << level;
    inputs += fmt::format(", %l{0}: f32[{1}], %r{0}: f32[{1}]", level, extent);
    for (const char* side : {"l", "r"})
      text += fmt::format(
          "  %{0}m{1} = mul %{2}, %{0}{1} : f32[{3}]\n"
          "  %{0}s{1} = reshape %{0}m{1} : f32[{3}, 1]\n",
          side, level, value, extent);
    text += fmt::format(
        "  %c{0} = concat %ls{0}, %rs{0} {{axis: 1}} : f32[{1}, 2]\n"
        "  %v{0} = reshape %c{0} : f32[{2}]\n",
        level, extent, 2 * extent);
    value = fmt::format("v{}", level);
  }
  return parse("graph @main(%x: f32[1]" + inputs + ") {\n" + text + "  return %" + value + "\n}");
}

TEST(Growth, WhatTwoBranchesReadInPlaceIsComputedInBoth) {
  const auto fits_one_body = [](int levels) {
    const Graph graph = interleaved_products(levels);
    const LoopForms forms(graph);
    std::vector<NodeId> nodes;
    for (size_t i = 0; i < graph.size(); ++i)
      if (!graph[NodeId(i)].operands.empty()) nodes.push_back(NodeId(i));
    return InlinedSizes(forms).within_bounds(nodes);
  };
  EXPECT_TRUE(fits_one_body(4));
  EXPECT_FALSE(fits_one_body(9));
  const Graph graph = interleaved_products(9);
  EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, 1), "sim:cpu"));
}

// A tree as broad as the graph, whose branches are short.
TEST(Growth, BroadBodiesAreCutIntoKernels) {
  std::string text = "graph @main(%x: f32[8]) {\n";
  int count = 512;
  for (int i = 0; i < count; ++i)
    text += fmt::format(
        "  %c{0} = constant {0}.5 : f32[]\n  %d{0} = sub %x, %c{0} : f32[8]\n"
        "  %v0_{0} = mul %d{0}, %d{0} : f32[8]\n",
        i);
  for (int level = 1; count > 1; ++level) {
    count /= 2;
    for (int i = 0; i < count; ++i)
      text += fmt::format("  %v{0}_{1} = max %v{2}_{3}, %v{2}_{4} : f32[8]\n", level, i, level - 1,
                          2 * i, 2 * i + 1);
  }
  const Graph graph = parse(text + "  return %v9_0\n}");
  EXPECT_LE(longest_kernel(graph), 2 * static_cast<size_t>(kLargestBody));
  EXPECT_GT(parts_of(graph).partition.fusions.size(), 1u);
  EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, 1), "sim:cpu"));
}

// A maximum of windows with stride 2: each of their loads is one for each lane.
Graph strided_windows(int count) {
  std::string text = "graph @main(%x: f32[600]) {\n", most = "%s0";
  for (int i = 0; i < count; ++i) {
    text += fmt::format(
        "  %s{0} = slice %x {{starts: [{0}], limits: [{1}], strides: [2]}} : f32[256]\n", i,
        i + 511);
    if (i == 0) continue;
    text += fmt::format("  %m{0} = max {1}, %s{0} : f32[256]\n", i, most);
    most = fmt::format("%m{}", i);
  }
  return parse(text + "  return " + most + "\n}");
}

TEST(Growth, ManyLoadsOfLanesAreOneVectorAtATime) {
  Target machine = *find_target("x86-64-v4");
  machine.simulated = true;
  const auto schedule = [&](const Graph& graph) {
    const Program program = compile(graph, machine);
    EXPECT_EQ(program.launches.size(), 1u);
    return program.launches.front().schedule + " ";
  };
  EXPECT_NE(schedule(strided_windows(4)).find("split i.2 64;"), std::string::npos);
  EXPECT_NE(schedule(strided_windows(49)).find("split i.2 16;"), std::string::npos);
  const Graph graph = strided_windows(49);
  EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, 1), Device("cpu")));
}

// A chain of so many values, of which each uses the one before it twice, or the two before it. Who
// follows each use on its own never ends.
std::string chain_of(const std::string& op, int length) {
  std::string text, last = "%x", before = "%x";
  for (int i = 0; i < length; ++i) {
    std::string own = fmt::format("%c{}", i);
    const std::string other = op == "mixed" ? before : last;
    constexpr const char* kMixed[] = {"sub", "max", "add", "mul"};
    text += op == "select" ? fmt::format(
                                 "  %p{0} = lt {1}, %x : bool[64, 80]\n"
                                 "  {2} = select %p{0}, {1}, {1} : f32[64, 80]\n",
                                 i, last, own)
                           : fmt::format("  {} = {} {}, {} : f32[64, 80]\n", own,
                                         op == "mixed" ? kMixed[i % 4] : op, last, other);
    before = std::exchange(last, own);
  }
  return text + fmt::format("  %y = neg {} : f32[64, 80]\n", last);
}

TEST(Growth, ValuesThatAreUsedTwiceInAChain) {
  constexpr const char* kReaders[] = {// a sum, a product, a scan, places
                                      R"(  %r = reduce sum %y {axes: [1]} : f32[64])",
                                      R"(  %r = dot %y, %w {contract: [1] x [0]} : f32[64, 96])",
                                      R"(  %r = scan sum %y {axis: 1} : f32[64, 80])",
                                      R"(  %i = convert %y : i64[64, 80]
  %r = gather %v, %i {axis: 0} : f32[64, 80])",
                                      // softmax
                                      R"(  %m = reduce max %y {axes: [1]} : f32[64]
  %mb = broadcast %m {axes: [0]} : f32[64, 80]
  %d = sub %y, %mb : f32[64, 80]
  %e = exp %d : f32[64, 80]
  %s = reduce sum %e {axes: [1]} : f32[64]
  %sb = broadcast %s {axes: [0]} : f32[64, 80]
  %q = div %e, %sb : f32[64, 80]
  %r = dot %q, %w {contract: [1] x [0]} : f32[64, 96])",
                                      // attention
                                      R"(  %p = dot %y, %x {contract: [1] x [1]} : f32[64, 64]
  %m = reduce max %p {axes: [1]} : f32[64]
  %mb = broadcast %m {axes: [0]} : f32[64, 64]
  %d = sub %p, %mb : f32[64, 64]
  %e = exp %d : f32[64, 64]
  %r = dot %e, %x {contract: [1] x [0]} : f32[64, 80])",
                                      // rows that differ from their mean
                                      R"(  %m = reduce sum %y {axes: [1]} : f32[64]
  %mb = broadcast %m {axes: [0]} : f32[64, 80]
  %d = sub %y, %mb : f32[64, 80]
  %q = mul %d, %d : f32[64, 80]
  %r = reduce sum %q {axes: [1]} : f32[64])"};
  for (const char* op : {"add", "mul", "max", "mixed", "select"})
    for (const std::string reader : kReaders) {
      const Graph graph = parse(fmt::format(
          "graph @main(%x: f32[64, 80], %w: f32[80, 96], %v: f32[300]) {{\n{}{}\n  return %r\n}}",
          chain_of(op, 48), reader));
      for (const char* device : {"sim:cpu", "sim:sm_90"})
        EXPECT_FALSE(compile(graph, Device(device).target()).launches.empty());
    }
}

// Attention over `rows` rows where a condition holds that a chain makes of two comparisons, of
// positions or of integers that are loaded.
Graph chain_of_conditions(bool loaded, int rows) {
  std::string text, last = "%p", before = "%q";
  for (int i = 0; i < 48; ++i) {
    std::string own = fmt::format("%c{}", i);
    text += fmt::format("  {0} = {1} {2}, {3} : bool[{4}, {4}]\n", own,
                        i % 2 ? "logical_and" : "logical_or", last, before, rows);
    before = std::exchange(last, own);
  }
  const char* one = loaded ? "broadcast %a {axes: [0]}" : "iota {axis: 0}";
  const char* other = loaded ? "broadcast %b {axes: [1]}" : "iota {axis: 1}";
  return parse(fmt::format(R"(graph @main(%x: f32[{0}, 64], %a: i32[{0}], %b: i32[{0}]) {{
  %i = {1} : i32[{0}, {0}]
  %k = {2} : i32[{0}, {0}]
  %p = ge %i, %k : bool[{0}, {0}]
  %q = gt %i, %k : bool[{0}, {0}]
{3}  %l = constant -inf : f32[]
  %lb = broadcast %l {{axes: []}} : f32[{0}, {0}]
  %t = dot %x, %x {{contract: [1] x [1]}} : f32[{0}, {0}]
  %z = select {4}, %t, %lb : f32[{0}, {0}]
  %m = reduce max %z {{axes: [1]}} : f32[{0}]
  %mb = broadcast %m {{axes: [0]}} : f32[{0}, {0}]
  %d = sub %z, %mb : f32[{0}, {0}]
  %e = exp %d : f32[{0}, {0}]
  %r = dot %e, %x {{contract: [1] x [0]}} : f32[{0}, 64]
  return %r
}})",
                           rows, one, other, text, last));
}

// The same of conditions. Where none holds, terms are left out; of few rows, none are.
TEST(Growth, ConditionsThatAreUsedTwiceInAChain) {
  for (const bool loaded : {false, true})
    for (const char* device : {"sim:cpu", "sim:sm_90"}) {
      const Graph graph = chain_of_conditions(loaded, 64);
      EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, 1), Device(device)));
      EXPECT_FALSE(
          compile(chain_of_conditions(loaded, 1024), Device(device).target()).launches.empty());
    }
}

// --- What repeats --------------------------------------------------------------------------------

Graph layers(int count) {
  std::string inputs = "%x0: f32[16, 32]", text;
  for (int i = 0; i < count; ++i) {
    inputs += fmt::format(", %w{0}: f32[32, 32], %b{0}: f32[32]", i);
    text += fmt::format(R"(  %h{0} = dot %x{0}, %w{0} {{contract: [1] x [0]}} : f32[16, 32]
  %bb{0} = broadcast %b{0} {{axes: [1]}} : f32[16, 32]
  %s{0} = add %h{0}, %bb{0} : f32[16, 32]
  %g{0} = tanh %s{0} : f32[16, 32]
  %r{0} = add %g{0}, %x{0} : f32[16, 32]
  %m{0} = reduce max %r{0} {{axes: [1]}} : f32[16]
  %mb{0} = broadcast %m{0} {{axes: [0]}} : f32[16, 32]
  %x{1} = sub %r{0}, %mb{0} : f32[16, 32]
)",
                        i, i + 1);
  }
  return parse(fmt::format("graph @main({}) {{\n{}  return %x{}\n}}", inputs, text, count));
}

TEST(Repeated, LayersArePricedOnce) {
  const size_t one = parts_of(layers(1)).partition.priced;
  const size_t four = parts_of(layers(4)).partition.priced;
  const size_t sixteen = parts_of(layers(16)).partition.priced;
  EXPECT_GT(four, one);
  EXPECT_EQ(sixteen, four);
  EXPECT_LE(four, 10 * layers(4).size());
}

// More layers are more launches of the same codes.
TEST(Repeated, LayersAreCompiledOnce) {
  const Device cpu("cpu");
  const auto launches = [](const Program& program) { return program.launches.size(); };
  const auto four = testing::compile_for(cpu, layers(4));
  const auto sixteen = testing::compile_for(cpu, layers(16));
  EXPECT_GE(launches(*sixteen), 3 * launches(*four));
  EXPECT_EQ(sixteen->artifacts.size(), four->artifacts.size());
  EXPECT_LT(sixteen->artifacts.size(), launches(*sixteen));
  const Graph graph = layers(4);
  EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, 1), cpu));
}

// Products that read one tensor in two ways, each of which is a parameter of the kernel.
Graph products_of_one(int count) {
  std::string text = "graph @main(%x0: f32[72, 88]) {\n";
  for (int i = 0; i < count; ++i)
    text += fmt::format(
        "  %a{0} = dot %x{0}, %x{0} {{contract: [1] x [1]}} : f32[72, 72]\n"
        "  %x{1} = dot %a{0}, %x{0} {{contract: [1] x [0]}} : f32[72, 88]\n",
        i, i + 1);
  return parse(text + fmt::format("  return %x{}\n}}", count));
}

// All cores make kernels at the same time, and kernels that are alike at once. If somebody looks
// on, each kernel is made by itself, one after the other.
TEST(Repeated, WhoLooksOnChangesNothing) {
  CompileOptions options;
  options.assemble = false;
  CompileOptions watched = options;
  watched.observer = [](const CompilePhase&) {};
  for (const char* machine : {"x86-64-v3", "sm_90a", "sim:sm_80", "sim:sm_90"}) {
    const Target target = *find_target(machine);
    for (const Graph& graph : {layers(6), products_of_one(4)}) {
      const Program alone = compile(graph, target, options), seen = compile(graph, target, watched);
      EXPECT_EQ(to_text(alone), to_text(seen)) << machine;
      ASSERT_EQ(alone.artifacts.size(), seen.artifacts.size());
      for (size_t i = 0; i < seen.artifacts.size(); ++i)
        EXPECT_EQ(alone.artifacts[i].code, seen.artifacts[i].code) << machine;
    }
  }
}

TEST(Repeated, WhoLooksOnChangesNothingOfRandomGraphs) {
  CompileOptions options;
  options.assemble = false;
  CompileOptions watched = options;
  watched.observer = [](const CompilePhase&) {};
  const Target target = *find_target("sm_90a");
  for (uint64_t seed = 0; seed < 12; ++seed)
    for (const Graph& graph :
         {fuzz::random_graph(seed, {.siblings = true}), fuzz::random_graph(seed, {}),
          fuzz::random_cascade(seed), fuzz::random_windowed_product(seed)})
      EXPECT_EQ(to_text(compile(graph, target, options)), to_text(compile(graph, target, watched)))
          << seed << to_text(graph);
}

// A recurrence, each step of which reads another row of x, and writes another one of the result.
Graph recurrence(int steps) {
  std::string text =
      fmt::format("graph @main(%x: f32[{0}, 6, 40], %u: f32[40, 40], %h0: f32[6, 40]) {{\n", steps);
  std::string all;
  for (int t = 0; t < steps; ++t) {
    text += fmt::format(
        "  %s{0} = slice %x {{starts: [{0}, 0, 0], limits: [{1}, 6, 40], strides: [1, 1, 1]}} : "
        "f32[1, 6, 40]\n"
        "  %r{0} = reshape %s{0} : f32[6, 40]\n"
        "  %d{0} = dot %h{0}, %u {{contract: [1] x [0]}} : f32[6, 40]\n"
        "  %a{0} = add %d{0}, %r{0} : f32[6, 40]\n"
        "  %m{0} = reduce max %a{0} {{axes: [1]}} : f32[6]\n"
        "  %b{0} = broadcast %m{0} {{axes: [0]}} : f32[6, 40]\n"
        "  %h{1} = sub %r{0}, %b{0} : f32[6, 40]\n",
        t, t + 1);
    all += fmt::format("{}%h{}", t == 0 ? "" : ", ", t + 1);
  }
  return parse(text + "  return " + all + "\n}");
}

// Their kernels differ in one number, which each launch passes to the code that they share.
TEST(Repeated, StepsOfARecurrenceShareTheirCode) {
  CompileOptions options;
  options.assemble = false;
  const Program program = compile(recurrence(9), *find_target("sm_90a"), options);
  EXPECT_EQ(program.launches.size(), 18u);
  EXPECT_EQ(program.artifacts.size(), 2u);
  std::set<int64_t> passed;
  for (const Launch& launch : program.launches)
    for (const Expr& scalar : launch.scalars) passed.insert(scalar.as_constant().value());
  EXPECT_EQ(passed, (std::set<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8}));
  for (const char* name : {"sim:sm_90", "sim:sm_80"})
    for (const int steps : {3, 9}) {
      const Graph graph = recurrence(steps);
      EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, 2), Device(name))) << name;
    }
}

// How many kernels are scheduled, tiled and lowered by themselves.
int64_t count_tiled(const Graph& graph, const Target& target, CompileOptions options = {}) {
  options.assemble = false;
  trace::SpanRecorder recorder;
  compile(graph, target, options);
  return std::ranges::count_if(
      recorder.take(), [](const trace::EndedSpan& span) { return span.name.starts_with("tile "); });
}

TEST(Repeated, LayersAreTiledOnce) {
  for (const char* machine : {"x86-64-v3", "sm_90a"}) {
    const Target target = *find_target(machine);
    EXPECT_EQ(count_tiled(layers(9), target), count_tiled(layers(3), target)) << machine;
  }
}

// Each kernel is tiled by itself where the simulator's reports name its values, and if the user
// gave its schedule.
TEST(Repeated, WhatIsAlikeMayStillDiffer) {
  const Target cpu = *find_target("x86-64-v3"), simulator = *find_target("sim:sm_90");
  EXPECT_EQ(count_tiled(layers(9), simulator) - count_tiled(layers(8), simulator),
            count_tiled(layers(8), simulator) - count_tiled(layers(7), simulator));
  EXPECT_GT(count_tiled(layers(9), simulator), count_tiled(layers(8), simulator));
  const Program program = compile(layers(9), cpu);
  CompileOptions options;
  for (const Launch& launch : program.launches) options.schedules[launch.name] = launch.schedule;
  EXPECT_EQ(count_tiled(layers(9), cpu, options), std::ssize(program.launches));
  EXPECT_EQ(to_text(compile(layers(9), cpu, options)), to_text(program));
}

TEST(Repeated, ChainsOfOneOpShareTheirCode) {
  std::string text = "graph @main(%y0: f32[8]) {\n";
  for (int i = 0; i < 90; ++i) text += fmt::format("  %y{} = sin %y{} : f32[8]\n", i + 1, i);
  const Graph graph = parse(text + "  return %y90\n}");
  const Device cpu("cpu"), simulator("sim:cpu");
  const auto program = testing::compile_for(cpu, graph);
  EXPECT_GE(program->launches.size(), 3u);
  EXPECT_LE(program->artifacts.size(), 2u);
  // Each launch has its own name and nodes, and the values are those of kernels that share nothing.
  std::set<std::string> names;
  for (const Launch& launch : program->launches) names.insert(launch.name);
  EXPECT_EQ(names.size(), program->launches.size());
  const auto inputs = fuzz::random_inputs(graph, 1);
  const auto alone = testing::compile_for(simulator, graph);
  EXPECT_EQ(alone->artifacts.size(), alone->launches.size());
  const auto shared_values = testing::run(program, cpu, inputs);
  const auto values = testing::run(alone, simulator, inputs);
  EXPECT_EQ(std::memcmp(shared_values[0].data(), values[0].data(), values[0].size_bytes()), 0);
}

// Kernels that differ in a constant or in a size are not equal. Which input is which operand is no
// difference.
TEST(Repeated, WhatDiffersHasItsOwnCode) {
  const Graph graph = parse(R"(graph @main(%a: f32[8], %b: f32[8], %c: f32[16]) {
  %s = sub %a, %b : f32[8]
  %r = sub %b, %a : f32[8]
  %m = sub %s, %r : f32[8]
  %k2 = constant 2 : f32[]
  %k3 = constant 3 : f32[]
  %d = mul %a, %k2 : f32[8]
  %t = mul %b, %k3 : f32[8]
  %e = mul %c, %k2 : f32[16]
  %f = mul %b, %k2 : f32[8]
  return %m, %d, %t, %e, %f
})");
  const Device cpu("cpu");
  const auto program = testing::compile_for(cpu, graph, {.fuse = false});
  EXPECT_EQ(program->launches.size(), 7u);
  // %s, %r and %m are one code, %d and %f another.
  EXPECT_EQ(program->artifacts.size(), 4u);
  EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, 1), cpu, {.fuse = false}));
}

}  // namespace
}  // namespace braze
