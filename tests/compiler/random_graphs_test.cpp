// Random graphs over all ops, compiled for a device and compared with the interpreter.
// BRAZE_TEST_SEED=1000000 takes other graphs than the tests do; BRAZE_TEST_CASCADES=5000 asks for
// another number of those with large dots.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "ir/support/text.h"
#include "tests/compiler/run.h"
#include "tests/fuzz/cascades.h"
#include "tests/fuzz/generator.h"
#include "tests/fuzz/shrink.h"

namespace braze {
namespace {

constexpr uint64_t kGraphs = 5000;
constexpr uint64_t kGraphsATest = 50;

/// The number that is added to all seeds.
uint64_t first_seed() {
  const char* text = std::getenv("BRAZE_TEST_SEED");
  return text ? std::strtoull(text, nullptr, 10) : 0;
}

class RandomGraphs : public ::testing::TestWithParam<uint64_t> {};

TEST_P(RandomGraphs, AgreeWithTheInterpreter) {
  const uint64_t first = first_seed() + GetParam();
  for (uint64_t seed = first; seed < first + kGraphsATest; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Graph graph = fuzz::random_graph(seed, {.siblings = true});
    EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, seed)));
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomGraphs, ::testing::Range<uint64_t>(0, kGraphs, kGraphsATest));

// What another precision allows or forbids is what its bound says.
TEST(RandomGraphsInPrecision, StrictAndFastAgreeWithTheInterpreter) {
  for (const Precision precision : {Precision::Strict, Precision::Fast}) {
    for (uint64_t seed = 0; seed < 150; ++seed) {
      SCOPED_TRACE(fmt::format("{}, seed {}", name(precision), seed));
      const Graph graph = fuzz::random_graph(seed, {});
      EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, seed), testing::test_device(),
                                  {.precision = precision}));
    }
  }
}

// Rows that are reduced, and their columns, of which there are enough for a GPU to walk them once.
TEST(RandomGraphsOfRowsAndColumns, AgreeWithTheInterpreter) {
  for (uint64_t seed = first_seed(); seed < first_seed() + 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Graph graph = fuzz::random_graph(
        seed, {.max_nodes = 8, .max_elements = 1 << 14, .rows_and_columns = true});
    EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, seed)));
  }
}

// One kernel an op must give what few kernels give.
TEST(RandomGraphsUnfused, AgreeWithTheInterpreter) {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Graph graph = fuzz::random_graph(seed, {});
    EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, seed), testing::test_device(),
                                {.fuse = false}));
  }
}

uint64_t cascades() {
  const char* text = std::getenv("BRAZE_TEST_CASCADES");
  return text ? std::strtoull(text, nullptr, 10) : 24;
}

// Whatever can be one kernel is one, as it would be if the lengths were larger. Errors do not end
// the test, so that many graphs show all of them.
void expect_agreement(Graph (*make)(uint64_t seed)) {
  for (uint64_t seed = first_seed(); seed < first_seed() + cascades(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Graph graph = make(seed);
    try {
      EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, seed), testing::test_device(),
                                  {.by_cost = false}));
    } catch (const Error& error) {
      ADD_FAILURE() << error.what() << "\n" << to_text(graph);
    }
  }
}

TEST(RandomCascades, AgreeWithTheInterpreter) { expect_agreement(fuzz::random_cascade); }

TEST(RandomWindowedProducts, AgreeWithTheInterpreter) {
  expect_agreement(fuzz::random_windowed_product);
}

}  // namespace
}  // namespace braze
