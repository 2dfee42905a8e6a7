// Programs for GPUs at the levels that a host can run: the tile programs that the tilings make give
// what the graph says, and lower to kernels that the verifier accepts.
#include <gtest/gtest.h>

#include "tests/compiler/levels.h"
#include "tests/compiler/run.h"
#include "tests/fuzz/generator.h"

namespace braze {
namespace {

constexpr uint64_t kGraphs = 2000;
constexpr uint64_t kGraphsATest = 50;

void check_tiles(const Graph& graph, std::span<const HostTensor> inputs,
                 const std::string& machine) {
  testing::TileTexts tiles;
  CompileOptions options;
  options.observer = tiles.observer();
  Program program = tiles.in(compile(graph, find_target("sim:" + machine).value(), options));
  // Layouts mean nothing to the interpreter of tiles.
  const Device host("sim:x86-64-v3");
  program.target = host.target();
  const auto got = testing::run(std::make_shared<const Program>(std::move(program)), host, inputs);
  const CheckResult result = testing::check(graph, inputs, got);
  EXPECT_TRUE(result.ok) << result.summary() << "\n" << to_text(graph);
}

class GpuTiles : public ::testing::TestWithParam<uint64_t> {};

TEST_P(GpuTiles, Agree) {
  for (uint64_t seed = GetParam(); seed < GetParam() + kGraphsATest; ++seed) {
    const Graph graph = fuzz::random_graph(seed, {});
    const std::vector<HostTensor> inputs = fuzz::random_inputs(graph, seed);
    for (const std::string machine : {"sm_80", "sm_90a"}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + " for " + machine);
      try {
        check_tiles(graph, inputs, machine);
      } catch (const Error& error) {
        ADD_FAILURE() << error.what() << "\n" << to_text(graph);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, GpuTiles, ::testing::Range<uint64_t>(0, kGraphs, kGraphsATest));

}  // namespace
}  // namespace braze
