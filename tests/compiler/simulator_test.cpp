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

bool runs_here(const std::string& machine) {
  return missing_features(find_target(machine).value(), host_features()).empty();
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
  if (!runs_here(machine)) return;
  const auto code = std::make_shared<const Program>(compile(graph, find_target(machine).value()));
  expect_identical(testing::run(code, "cpu", inputs), expected, "machine code against kernel");
}

// A machine, and the first seed.
class Levels : public ::testing::TestWithParam<std::tuple<const char*, uint64_t>> {};

TEST_P(Levels, Agree) {
  const auto [machine, first] = GetParam();
  for (uint64_t seed = first; seed < first + kGraphsATest; ++seed) {
    const Graph graph = fuzz::random_graph(seed, {});
    const std::vector<HostTensor> inputs = fuzz::random_inputs(graph, seed);
    SCOPED_TRACE("seed " + std::to_string(seed));
    try {
      check_levels(graph, inputs, machine);
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
  if (!runs_here(machine))
    GTEST_SKIP() << "this processor cannot run machine code of " << machine
                 << "; the interpreters agree";
}

INSTANTIATE_TEST_SUITE_P(Seeds, Levels,
                         ::testing::Combine(::testing::Values("x86-64-v3", "x86-64-v4"),
                                            ::testing::Range<uint64_t>(0, kGraphs, kGraphsATest)));

}  // namespace
}  // namespace braze
