// Kernels by the loop tree beside those of the old middle: equal bits, on the CPU and on the
// simulators, and a count of what the tree serves.
#include <gtest/gtest.h>

#include <map>

#include "ir/code/text.h"
#include "ir/tile/verify.h"
#include "tests/compiler/run.h"
#include "tests/fuzz/generator.h"

namespace braze {
namespace {

/// What became of the kernels of some graphs.
struct Count {
  int kernels = 0, by_tree = 0;
  std::map<std::string, int> refused;  // by reason

  void print(const char* what) const {
    printf("%s: %d of %d kernels by the loop tree\n", what, by_tree, kernels);
    for (const auto& [reason, count] : refused) printf("  %5d  %s\n", count, reason.c_str());
  }
};

CompileOptions by_tree(Count& count) {
  CompileOptions options;
  options.loop_tree = true;
  options.observer = [&count](const CompilePhase& phase) {
    if (phase.stage == "refusal") {
      std::string reason = phase.text();
      reason.pop_back();
      ++count.refused[reason];
    }
    if (phase.stage != "tile") return;
    ++count.kernels;
    const TileProgram program = parse_tile(phase.text(), "tile");
    count.by_tree += program.schedule.find("family=") == std::string::npos;
    for (const Diagnostic& finding : verify(program))
      ADD_FAILURE() << finding.to_string() << "\n" << phase.text();
  };
  return options;
}

// Equal bits both ways, and right ones.
void expect_equal(const Graph& graph, const std::vector<HostTensor>& inputs, const Device& device,
                  Count& count) {
  SCOPED_TRACE(device.name() + "\n" + to_text(graph));
  try {
    const auto before = testing::run(testing::compile_for(device, graph), device, inputs);
    const auto after =
        testing::run(testing::compile_for(device, graph, by_tree(count)), device, inputs);
    ASSERT_EQ(before.size(), after.size());
    for (size_t i = 0; i < before.size(); ++i)
      for (int64_t k = 0; k < before[i].numel(); ++k)
        ASSERT_EQ(before[i].get_bits(k), after[i].get_bits(k)) << "output " << i << " at " << k;
  } catch (const Error& error) {
    FAIL() << error.what();
  }
}

void expect_equal_of_random(const char* device, int seeds) {
  Count count;
  for (uint64_t seed = 0; seed < static_cast<uint64_t>(seeds); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Graph graph = fuzz::random_graph(seed, {.max_elements = 512, .max_products = 4096});
    expect_equal(graph, fuzz::random_inputs(graph, seed), Device(device), count);
    if (::testing::Test::HasFailure()) break;
  }
  count.print(device);
  EXPECT_GT(4 * count.by_tree, count.kernels);
}

TEST(LoopTree, GivesTheOldBitsOnTheCpu) { expect_equal_of_random("sim:cpu", 300); }
TEST(LoopTree, GivesTheOldBitsOnAGpu) { expect_equal_of_random("sim:sm_90", 300); }

}  // namespace
}  // namespace braze
