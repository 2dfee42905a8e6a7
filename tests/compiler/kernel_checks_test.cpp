// Kernels that are judged one by one: a wrong one is named, and right ones are never blamed.
#include "frontend/builder/kernel_checks.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/compiler/run.h"
#include "tests/fuzz/generator.h"

namespace braze {
namespace {

std::vector<std::string> wrong(const std::vector<KernelCheck>& checks) {
  std::vector<std::string> out;
  for (const KernelCheck& check : checks)
    if (!check.result.ok) out.push_back(check.kernel);
  return out;
}

// Changes the only product of a kernel into a sum.
void spoil(SingleLaunch& launch) {
  std::string& code = launch.program.artifacts.at(0).code;
  const size_t at = code.find("= mul ");
  ASSERT_NE(at, std::string::npos) << code;
  code.replace(at, 6, "= add ");
}

TEST(KernelChecks, AWrongKernelIsNamed) {
  const Graph graph = testing::parse(R"(graph @main(%x: f32[8, 16], %w: f32[16, 4]) {
  %scaled = mul %x, %x : f32[8, 16]
  %product = dot %scaled, %w {contract: [1] x [0]} : f32[8, 4]
  %total = reduce sum %product {axes: [1]} : f32[8]
  %root = sqrt %total : f32[8]
  return %root, %scaled
})");
  const std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 1);
  const Device device("sim:cpu");
  SingleLaunches all = compile_single_launches(graph, device.target(), {.fuse = false});
  ASSERT_EQ(all.launches.size(), 4u);
  EXPECT_TRUE(wrong(check_kernels(all, inputs, device)).empty());
  // What is computed from the wrong values is right all the same.
  const auto planted = std::ranges::find(all.launches, "scaled", &SingleLaunch::name);
  ASSERT_NE(planted, all.launches.end());
  spoil(*planted);
  const std::vector<KernelCheck> checks = check_kernels(all, inputs, device);
  EXPECT_EQ(wrong(checks), std::vector<std::string>{"scaled"});
  EXPECT_EQ(checks[0].result.outputs.at(0).name, "scaled");
  EXPECT_TRUE(checks[0].result.outputs.at(0).exact);
  EXPECT_FALSE(checks[1].result.outputs.at(0).exact);
}

// A sum of 300 products has a bound of its own, however many kernels come before it.
TEST(KernelChecks, BoundsDoNotGrowFromKernelToKernel) {
  std::string text = "graph @main(%x0: f32[4, 300], %w: f32[300, 300]) {\n";
  for (int i = 0; i < 6; ++i)
    text += fmt::format("  %x{} = dot %x{}, %w {{contract: [1] x [0]}} : f32[4, 300]\n", i + 1, i);
  const Graph graph = testing::parse(text + "  return %x6\n}");
  std::vector<HostTensor> inputs = {HostTensor(DType::F32, {4, 300}),
                                    HostTensor(DType::F32, {300, 300})};
  for (HostTensor& input : inputs)
    for (int64_t i = 0; i < input.numel(); ++i)
      input.set_double(i, std::sin(static_cast<double>(i * i % 1009)) / 8);
  const std::vector<KernelCheck> checks = check_kernels(graph, inputs, testing::test_device());
  ASSERT_EQ(checks.size(), 6u);
  for (const KernelCheck& check : checks) {
    EXPECT_TRUE(check.result.ok) << check.result.summary();
    EXPECT_EQ(check.result.coverage().share(), 1) << check.kernel;
    EXPECT_GT(check.tightness(), 1e-4) << check.kernel;
  }
}

TEST(KernelChecks, AnUpdateInPlaceStaysOne) {
  const Graph graph = testing::parse(R"(graph @main(%x: f32[50, 7], %i: i64[3], %u: f32[3, 7]) {
  %v = mul %u, %u : f32[3, 7]
  %y = scatter_set %x, %i, %v {axis: 0} : f32[50, 7]
  return %y updates %x
})");
  for (const Device& device : {Device("cpu"), Device("sim:cpu"), Device("sim:sm_90")}) {
    const SingleLaunches all = compile_single_launches(graph, device.target());
    ASSERT_EQ(all.launches.size(), 1u);
    EXPECT_TRUE(all.launches[0].program.outputs.at(0).updates) << device.name();
    std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 3);
    for (int64_t t = 0; t < 3; ++t) inputs[1].set_int(t, 7 * t);
    const auto checks = check_kernels(all, inputs, device);
    EXPECT_TRUE(wrong(checks).empty()) << checks[0].result.summary();
  }
}

// The size n is in the shape of no value that the second kernel reads.
TEST(KernelChecks, SizesAreKnownWhereNoInputHasThem) {
  const Graph graph = testing::parse(R"(symbol n: 1..64
graph @main(%x: f32[n]) {
  %total = reduce sum %x {axes: [0]} : f32[]
  %all = broadcast %total {axes: []} : f32[n, n]
  %root = sqrt %all : f32[n, n]
  return %root
})");
  const SingleLaunches all =
      compile_single_launches(graph, Device("cpu").target(), {.fuse = false});
  ASSERT_GE(all.launches.size(), 2u);
  const std::vector<HostTensor> inputs = {HostTensor(DType::F32, {13})};
  for (const KernelCheck& check : check_kernels(all, inputs, Device("cpu")))
    EXPECT_EQ(check.result.outputs.at(0).comparison.elements,
              check.result.outputs.at(0).name == "total" ? 1 : 169);
}

TEST(KernelChecks, EqualKernelsOfOneLaunchAreJudgedTogether) {
  const Graph graph =
      testing::parse(R"(graph @main(%x: f32[16, 64], %v: f32[64, 32], %w: f32[64, 32]) {
  %a = dot %x, %v {contract: [1] x [0]} : f32[16, 32]
  %b = dot %x, %w {contract: [1] x [0]} : f32[16, 32]
  return %a, %b
})");
  for (const char* name : {"cpu", "sim:sm_90"}) {
    const Device device(name);
    const auto checks = check_kernels(graph, fuzz::random_inputs(graph, 4), device);
    ASSERT_EQ(checks.size(), 1u);
    EXPECT_EQ(checks[0].members.size(), 2u);
    EXPECT_EQ(checks[0].result.outputs.size(), 2u);
    EXPECT_TRUE(checks[0].result.ok) << checks[0].result.summary();
  }
}

TEST(KernelChecks, KernelsOfRandomGraphsAreRight) {
  size_t kernels = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const Graph graph = fuzz::random_graph(seed);
    const std::vector<HostTensor> inputs = fuzz::random_inputs(graph, seed);
    for (const bool fuse : {true, false}) {
      const CompileOptions options{
          .precision = seed % 3 == 0 ? Precision::Fast : Precision::Standard, .fuse = fuse};
      for (const KernelCheck& check :
           check_kernels(graph, inputs, testing::test_device(), options)) {
        ++kernels;
        EXPECT_TRUE(check.result.ok)
            << seed << " " << check.kernel << ": " << check.result.summary();
      }
    }
  }
  EXPECT_GT(kernels, 300u);
}

}  // namespace
}  // namespace braze
