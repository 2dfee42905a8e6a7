// What kernels must not share, overwrite or read: one small graph for each rule that forbids it.
#include <gtest/gtest.h>

#include <algorithm>

#include "ir/graph/build.h"
#include "ir/support/text.h"
#include "tests/compiler/guarded.h"
#include "tests/compiler/run.h"
#include "tests/fuzz/generator.h"

namespace braze {
namespace {

using testing::parse;

/// On the CPU and on the simulators, fused and with one kernel an op.
void expect_right(const Graph& graph) {
  const std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 2);
  for (const char* device : {"cpu", "sim:cpu", "sim:sm_90"})
    for (const bool fuse : {true, false})
      EXPECT_TRUE(testing::agrees(graph, inputs, Device(device), {.fuse = fuse}))
          << device << (fuse ? "" : ", not fused");
}

// ---- Updates in place ---------------------------------------------------------------------------

/// Copies, which a program makes of what is not written in place.
size_t copies(const Graph& graph, bool fuse) {
  const Program program = compile(graph, Device("cpu").target(), {.fuse = fuse});
  return static_cast<size_t>(
      std::count_if(program.launches.begin(), program.launches.end(),
                    [](const Launch& l) { return l.artifact == Launch::kCopy; }));
}

// Each kernel reads what the other writes over: one of them has to write elsewhere.
TEST(InPlace, TwoThatReadEachOthersInput) {
  const Graph graph = parse(R"(graph @main(%a: f32[640], %b: f32[640]) {
  %ra = reverse %a {axes: [0]} : f32[640]
  %rb = reverse %b {axes: [0]} : f32[640]
  %y = add %a, %rb : f32[640]
  %z = mul %b, %ra : f32[640]
  return %y updates %a, %z updates %b
})");
  expect_right(graph);
  EXPECT_EQ(copies(graph, false), 1u);
}

TEST(InPlace, ThreeInACircle) {
  const Graph graph = parse(R"(graph @main(%a: f32[640], %b: f32[640], %c: f32[640]) {
  %ra = reverse %a {axes: [0]} : f32[640]
  %rb = reverse %b {axes: [0]} : f32[640]
  %rc = reverse %c {axes: [0]} : f32[640]
  %x = add %a, %rb : f32[640]
  %y = mul %b, %rc : f32[640]
  %z = sub %c, %ra : f32[640]
  return %x updates %a, %y updates %b, %z updates %c
})");
  expect_right(graph);
  EXPECT_EQ(copies(graph, false), 1u);
}

// Without the circle all are written in place, in the order that the reads ask for.
TEST(InPlace, ReadersRunFirst) {
  const Graph graph = parse(R"(graph @main(%a: f32[640], %b: f32[640], %c: f32[640]) {
  %ra = reverse %a {axes: [0]} : f32[640]
  %rb = reverse %b {axes: [0]} : f32[640]
  %x = neg %a : f32[640]
  %y = mul %b, %ra : f32[640]
  %z = sub %c, %rb : f32[640]
  return %x updates %a, %y updates %b, %z updates %c
})");
  expect_right(graph);
  EXPECT_EQ(copies(graph, false), 0u);
}

// The reader needs what the writer makes, directly or through another kernel.
TEST(InPlace, ReadersBehindTheWriter) {
  const Graph direct = parse(R"(graph @main(%a: f32[640]) {
  %y = neg %a : f32[640]
  %ra = reverse %a {axes: [0]} : f32[640]
  %z = add %y, %ra : f32[640]
  return %y updates %a, %z
})");
  expect_right(direct);
  EXPECT_EQ(copies(direct, false), 1u);
  const Graph through = parse(R"(graph @main(%a: f32[16, 40], %w: f32[40, 16]) {
  %y = neg %a : f32[16, 40]
  %s = dot %y, %w {contract: [1] x [0]} : f32[16, 16]
  %z = dot %s, %a {contract: [1] x [0]} : f32[16, 40]
  return %y updates %a, %z
})");
  expect_right(through);
  EXPECT_EQ(copies(through, false), 1u);
}

// A kernel that reads elements elsewhere than where it writes them.
TEST(InPlace, OfShiftedReads) {
  expect_right(parse(R"(graph @main(%a: f32[640]) {
  %ra = reverse %a {axes: [0]} : f32[640]
  %y = add %a, %ra : f32[640]
  return %y updates %a
})"));
  expect_right(parse(R"(graph @main(%a: f32[16, 40]) {
  %s = reduce sum %a {axes: [0]} : f32[40]
  %sb = broadcast %s {axes: [1]} : f32[16, 40]
  %y = sub %a, %sb : f32[16, 40]
  return %y updates %a
})"));
  // Rows are read whole before any of it is written, but by another row's kernel too.
  expect_right(parse(R"(graph @main(%a: f32[16, 16]) {
  %t = transpose %a {permutation: [1, 0]} : f32[16, 16]
  %s = reduce sum %t {axes: [1]} : f32[16]
  %sb = broadcast %s {axes: [0]} : f32[16, 16]
  %y = sub %a, %sb : f32[16, 16]
  return %y updates %a
})"));
}

// ---- Values that are there under a condition only -----------------------------------------------

/// A costly value padded twice with different fillers, over two passes: the value that both share
/// exists inside only, so that it is not to be computed at all places and kept.
Graph padded_twice(const std::string& monoid, const std::string& pad, int64_t padded) {
  return parse(fmt::format(R"(graph @main(%x: f32[16, 64]) {{
  %e = tanh %x : f32[16, 64]
  %zero = constant 0 : f32[]
  %two = constant 2 : f32[]
  %p = pad %e, %zero {1} : f32[16, {2}]
  %q = pad %e, %two {1} : f32[16, {2}]
  %m = reduce {0} %p {{axes: [1]}} : f32[16]
  %mb = broadcast %m {{axes: [0]}} : f32[16, {2}]
  %y = sub %q, %mb : f32[16, {2}]
  return %y
}})",
                           monoid, pad, padded));
}

TEST(Padded, TwiceWithDifferentFillers) {
  for (const char* monoid : {"sum", "max"})
    for (const auto& [pad, padded] :
         {std::pair("{low: [0, 3], high: [0, 0], interior: [0, 0]}", 67),
          std::pair("{low: [0, 0], high: [0, 16], interior: [0, 0]}", 80),
          std::pair("{low: [0, 32], high: [0, 32], interior: [0, 0]}", 128),
          std::pair("{low: [0, 5], high: [0, 4], interior: [0, 1]}", 136)}) {
      SCOPED_TRACE(fmt::format("{} of {}", monoid, pad));
      const Graph graph = padded_twice(monoid, pad, padded);
      EXPECT_EQ(compile(graph, Device("cpu").target()).launches.size(), 1u)
          << "or it shows nothing";
      testing::expect_within_guards(graph, fuzz::random_inputs(graph, 2));
      expect_right(graph);
    }
}

// The same of a slice that a concat puts beside another.
TEST(Padded, PartsOfAConcat) {
  const Graph graph = parse(R"(graph @main(%x: f32[16, 32], %z: f32[16, 32]) {
  %e = tanh %x : f32[16, 32]
  %p = concat %z, %e {axis: 1} : f32[16, 64]
  %n = neg %z : f32[16, 32]
  %q = concat %n, %e {axis: 1} : f32[16, 64]
  %m = reduce max %p {axes: [1]} : f32[16]
  %mb = broadcast %m {axes: [0]} : f32[16, 64]
  %y = sub %q, %mb : f32[16, 64]
  return %y
})");
  testing::expect_within_guards(graph, fuzz::random_inputs(graph, 2));
  expect_right(graph);
}

// Static graphs of all kinds stay in their buffers.
TEST(Guarded, RandomGraphsReadNothingBeside) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Graph graph = fuzz::random_graph(seed, {.symbolic = false});
    testing::expect_within_guards(graph, fuzz::random_inputs(graph, seed));
  }
}

// ---- What cannot be one kernel ------------------------------------------------------------------

// A value that the third kernel needs of the first and of the second: none may wait for another
// that waits for it.
TEST(OneKernel, NoCycles) {
  expect_right(parse(R"(graph @main(%x: f32[32, 8], %w: f32[32, 32]) {
  %a = reduce sum %x {axes: [1]} : f32[32]
  %d = dot %a, %w {contract: [0] x [0]} : f32[32]
  %r = reverse %d {axes: [0]} : f32[32]
  %y = add %a, %r : f32[32]
  return %y
})"));
  // Through two kernels, and with a sibling that shares the input.
  expect_right(parse(R"(graph @main(%x: f32[32, 8], %w: f32[32, 32], %v: f32[32, 32]) {
  %a = reduce sum %x {axes: [1]} : f32[32]
  %d = dot %a, %w {contract: [0] x [0]} : f32[32]
  %e = dot %d, %v {contract: [0] x [0]} : f32[32]
  %b = reduce max %x {axes: [1]} : f32[32]
  %s = add %a, %e : f32[32]
  %y = mul %s, %b : f32[32]
  return %y, %b
})"));
}

// Two kernels that read each other's values without elements wait for nothing.
TEST(OneKernel, NothingToWaitFor) {
  expect_right(parse(R"(graph @main(%x: f32[32, 8], %z: f32[0, 8]) {
  %a = reduce sum %x {axes: [1]} : f32[32]
  %none = slice %x {starts: [0, 0], limits: [0, 8], strides: [1, 1]} : f32[0, 8]
  %e = reduce sum %none {axes: [1]} : f32[0]
  %t = slice %a {starts: [0], limits: [0], strides: [1]} : f32[0]
  %f = concat %e, %t {axis: 0} : f32[0]
  %g = reduce max %z {axes: [1]} : f32[0]
  %h = add %f, %g : f32[0]
  %one = constant 1 : f32[]
  %p = pad %h, %one {low: [32], high: [0], interior: [0]} : f32[32]
  %y = mul %a, %p : f32[32]
  return %y, %a
})"));
}

// Nor does an extent that is 0 because its symbol has one value only.
TEST(OneKernel, ExtentsThatCanOnlyBeZero) {
  expect_right(parse(R"(symbol n: 8..8%8
graph @main(%x: f32[n]) {
  %none = slice %x {starts: [8], limits: [n], strides: [1]} : f32[n - 8]
  %i = iota {axis: 0} : f32[37, n - 8]
  %b = broadcast %none {axes: [1]} : f32[37, n - 8]
  %y = add %i, %b : f32[37, n - 8]
  %s = reduce sum %y {axes: [1]} : f32[37]
  return %y, %s, %none
})"));
}

// Rows and columns of one matrix; a reduction of a reduction; what is read through another map.
TEST(OneKernel, ReductionsThatNeedTheirOwnLoops) {
  expect_right(parse(R"(graph @main(%x: f32[24, 24]) {
  %r = reduce sum %x {axes: [1]} : f32[24]
  %c = reduce sum %x {axes: [0]} : f32[24]
  %y = add %r, %c : f32[24]
  return %y, %r, %c
})"));
  expect_right(parse(R"(graph @main(%x: f32[24, 40]) {
  %r = reduce sum %x {axes: [1]} : f32[24]
  %m = reduce max %r {axes: [0]} : f32[]
  %mb = broadcast %m {axes: []} : f32[24, 40]
  %y = sub %x, %mb : f32[24, 40]
  return %y, %r
})"));
  expect_right(parse(R"(graph @main(%x: f32[24, 24]) {
  %r = reduce sum %x {axes: [1]} : f32[24]
  %v = reverse %r {axes: [0]} : f32[24]
  %rb = broadcast %r {axes: [0]} : f32[24, 24]
  %vb = broadcast %v {axes: [0]} : f32[24, 24]
  %d = sub %x, %rb : f32[24, 24]
  %y = mul %d, %vb : f32[24, 24]
  return %y
})"));
  // The diagonal of rows and columns: one axis twice.
  expect_right(parse(R"(graph @main(%x: f32[24, 24]) {
  %r = reduce sum %x {axes: [1]} : f32[24]
  %rb = broadcast %r {axes: [0]} : f32[24, 24]
  %cb = broadcast %r {axes: [1]} : f32[24, 24]
  %y = mul %rb, %cb : f32[24, 24]
  %z = reduce max %y {axes: [1]} : f32[24]
  return %y, %z
})"));
  // What is read along and across.
  expect_right(parse(R"(graph @main(%x: f32[24, 24, 8]) {
  %r = reduce sum %x {axes: [2]} : f32[24, 24]
  %t = transpose %r {permutation: [1, 0]} : f32[24, 24]
  %y = sub %r, %t : f32[24, 24]
  return %y
})"));
  // A reduction that places its terms, and one of its result.
  expect_right(parse(R"(graph @main(%x: f32[24, 40], %i: i64[40], %u: f32[40, 40]) {
  %j = constant 0 : i64[]
  %l = constant 23 : i64[]
  %k = clamp %i, %j, %l : i64[40]
  %s = scatter_add %x, %k, %u {axis: 0} : f32[24, 40]
  %r = reduce sum %s {axes: [1]} : f32[24]
  %rb = broadcast %r {axes: [0]} : f32[24, 40]
  %y = sub %s, %rb : f32[24, 40]
  return %y
})"));
}

}  // namespace
}  // namespace braze
