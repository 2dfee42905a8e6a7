// What repeats is compiled once. Work is counted, never timed.
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "ir/support/text.h"
#include "tests/compiler/run.h"
#include "tests/fuzz/generator.h"

namespace braze {
namespace {

using testing::parse;

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

// Kernels that differ in a constant, in which input stands where, or in a size are not equal.
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
  // %s and %m are one code, %d and %f another.
  EXPECT_EQ(program->artifacts.size(), 5u);
  EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, 1), cpu, {.fuse = false}));
}

}  // namespace
}  // namespace braze
