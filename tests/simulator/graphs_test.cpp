// Random graphs through the kernels for GPUs, run on the simulator: values within their bounds,
// elementwise results with the CPU's bits, and no finding.
#include <gtest/gtest.h>

#include "tests/compiler/run.h"
#include "tests/fuzz/generator.h"

namespace braze {
namespace {

constexpr uint64_t kGraphs = 400;
constexpr uint64_t kGraphsATest = 25;

class GpuSimulator : public ::testing::TestWithParam<uint64_t> {};

TEST_P(GpuSimulator, RandomGraphs) {
  for (uint64_t seed = GetParam(); seed < GetParam() + kGraphsATest; ++seed) {
    const Graph graph = fuzz::random_graph(seed, {});
    const std::vector<HostTensor> inputs = fuzz::random_inputs(graph, seed);
    for (const std::string machine : {"sim:sm_80", "sim:sm_90"}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + " on " + machine);
      try {
        const Device device(machine);
        const auto program = testing::compile_for(device, graph);
        const CheckResult result =
            testing::check(graph, inputs, testing::run(program, device, inputs));
        EXPECT_TRUE(result.ok) << result.summary();
      } catch (const Error& error) {
        ADD_FAILURE() << error.what();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, GpuSimulator, ::testing::Range<uint64_t>(0, kGraphs, kGraphsATest));

}  // namespace
}  // namespace braze
