// One program at three levels: tile interpreter, kernel interpreter and machine code agree bit for
// bit, and the interpreters find nothing.
#include <gtest/gtest.h>

#include "runtime/devices/cpu/host_target.h"
#include "tests/compiler/levels.h"
#include "tests/compiler/run.h"
#include "tests/fuzz/generator.h"

namespace braze {
namespace {

constexpr uint64_t kGraphs = 300;
constexpr uint64_t kGraphsATest = 25;

void expect_identical(const std::vector<HostTensor>& got, const std::vector<HostTensor>& expected,
                      std::string_view level) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const Comparison comparison = compare(got[i], expected[i]);
    EXPECT_TRUE(comparison.ok) << level << ", output " << i << ": " << comparison.summary();
  }
}

void check_levels(const Graph& graph, std::span<const HostTensor> inputs,
                  const std::string& machine) {
  testing::TileTexts tiles;
  CompileOptions options;
  options.observer = tiles.observer();
  const Device simulator("sim:" + machine);
  const auto kernels = testing::compile_for(simulator, graph, options);
  const auto expected = testing::run(kernels, simulator, inputs);
  const auto tile_program = std::make_shared<const Program>(tiles.in(*kernels));
  expect_identical(testing::run(tile_program, simulator, inputs), expected, "tile against kernel");
  const Target target = find_target(machine).value();
  if (!missing_features(target, host_features()).empty()) return;
  const auto code = std::make_shared<const Program>(compile(graph, target));
  expect_identical(testing::run(code, "cpu", inputs), expected, "machine code against kernel");
}

class Levels : public ::testing::TestWithParam<uint64_t> {};

TEST_P(Levels, Agree) {
  for (uint64_t seed = GetParam(); seed < GetParam() + kGraphsATest; ++seed) {
    const Graph graph = fuzz::random_graph(seed, {});
    const std::vector<HostTensor> inputs = fuzz::random_inputs(graph, seed);
    for (const std::string machine : {"x86-64-v3", "x86-64-v4"}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + " for " + machine);
      try {
        check_levels(graph, inputs, machine);
      } catch (const Error& error) {
        ADD_FAILURE() << error.what();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, Levels, ::testing::Range<uint64_t>(0, kGraphs, kGraphsATest));

}  // namespace
}  // namespace braze
