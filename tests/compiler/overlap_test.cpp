// Kernels that begin before the kernels before them have ended: what they load before they wait,
// and which launches are allowed to.
#include <gtest/gtest.h>

#include "braze/compile.h"
#include "ir/graph/text.h"
#include "ir/program/program.h"
#include "ir/target/target.h"

namespace braze {
namespace {

Program compiled(std::string_view text, std::string_view target) {
  return compile(parse_graph(text, "test"), find_target(target).value());
}

// Two products of few rows, one after the other.
constexpr std::string_view kChain = R"(braze 1 graph
graph @chain(%x: f32[1, 512], %w: f32[512, 64], %v: f32[64, 512]) {
  %a = dot %x, %w {contract: [1] x [0]} : f32[1, 64]
  %b = dot %a, %v {contract: [1] x [0]} : f32[1, 512]
  return %a, %b
}
)";

// The places of the wait and of the first loads of two parameters in the text of a kernel.
struct Places {
  size_t wait, of_first, of_second;
};
Places places(const Program& program, const Launch& launch) {
  const std::string& text = program.artifacts[launch.artifact].code;
  const auto load_of = [&](size_t parameter) {
    return text.find("load %" + program.slots[launch.buffers[parameter]].label + "[");
  };
  return {text.find("griddep.wait"), load_of(0), load_of(1)};
}

TEST(Overlap, ValuesThatNoKernelWritesAreLoadedBeforeTheWait) {
  const Program program = compiled(kChain, "sim:sm_90a");
  ASSERT_EQ(program.launches.size(), 2u);
  const Launch& second = program.launches[1];
  ASSERT_EQ(program.slots[second.buffers[0]].label, "v");
  const Places at = places(program, second);
  ASSERT_NE(at.wait, std::string::npos);
  EXPECT_LT(at.of_first, at.wait);
  EXPECT_GT(at.of_second, at.wait) << "the kernel before writes it";
}

// The bulk copies of a role that fill its first slots. The product before makes the other factor.
TEST(Overlap, CopiesOfValuesThatNoKernelWritesBeginBeforeTheWait) {
  const Program program = compiled(R"(braze 1 graph
graph @products(%x: bf16[16, 1024], %w: bf16[1024, 2048], %v: bf16[2048, 1024]) {
  %a = dot %x, %w {contract: [1] x [0]} : bf16[16, 2048]
  %b = dot %a, %v {contract: [1] x [0]} : bf16[16, 1024]
  return %b
}
)",
                                   "sim:sm_90a");
  ASSERT_EQ(program.launches.size(), 2u);
  EXPECT_TRUE(program.launches[1].gpu.front().overlaps);
  const std::string& text = program.artifacts[program.launches[1].artifact].code;
  const auto copy_of = [&](std::string_view map) {
    return text.find(", %m" + std::string(map) + "[");
  };
  const size_t wait = text.find("griddep.wait");
  ASSERT_NE(wait, std::string::npos) << text;
  EXPECT_LT(text.find("griddep.launch"), wait);
  EXPECT_LT(copy_of("v"), wait) << text;
  EXPECT_GT(copy_of("a"), wait) << text;
  EXPECT_NE(text.find("griddep.wait", wait + 1), std::string::npos) << "the other role waits too";
}

TEST(Overlap, TheFirstLaunchOfAProgramDoesNot) {
  const Program program = compiled(kChain, "sim:sm_90a");
  ASSERT_EQ(program.launches.size(), 2u);
  EXPECT_FALSE(program.launches[0].gpu.front().overlaps);
  EXPECT_TRUE(program.launches[1].gpu.front().overlaps);
}

TEST(Overlap, OlderMachinesDoNot) {
  const Program program = compiled(kChain, "sim:sm_80");
  for (const Launch& launch : program.launches) {
    EXPECT_FALSE(launch.gpu.front().overlaps);
    EXPECT_EQ(program.artifacts[launch.artifact].code.find("griddep"), std::string::npos);
  }
}

// The launch before it may have no instances. Then the kernel before it is that of another program,
// which may write what this one loads early.
TEST(Overlap, ALaunchBehindOneThatMayBeEmptyDoesNot) {
  const Program program = compiled(R"(braze 1 graph
symbol n: 0..64
graph @maybe(%x: f32[n, 512], %y: f32[1, 512], %w: f32[512, 512]) {
  %a = exp %x : f32[n, 512]
  %b = dot %y, %w {contract: [1] x [0]} : f32[1, 512]
  return %a, %b
}
)",
                                   "sim:sm_90a");
  ASSERT_EQ(program.launches.size(), 2u);
  EXPECT_FALSE(program.launches[1].gpu.front().overlaps);
}

// An input that some kernel of the program overwrites is loaded after the wait.
TEST(Overlap, WhatIsUpdatedIsLoadedAfterTheWait) {
  const Program program = compiled(R"(braze 1 graph
graph @updated(%x: f32[1, 512], %w: f32[512, 512]) {
  %a = dot %x, %w {contract: [1] x [0]} : f32[1, 512]
  %s = broadcast %a {axes: [0, 1]} : f32[512, 512]
  %u = add %w, %s : f32[512, 512]
  return %u updates %w
}
)",
                                   "sim:sm_90a");
  for (const Launch& launch : program.launches) {
    if (!launch.is_kernel()) continue;
    const std::string& text = program.artifacts[launch.artifact].code;
    EXPECT_GT(text.find("load %w["), text.find("griddep.wait")) << text;
  }
}

}  // namespace
}  // namespace braze
