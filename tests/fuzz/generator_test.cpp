#include "tests/fuzz/generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "ir/graph/check.h"
#include "ir/graph/interpret.h"
#include "ir/graph/reference.h"
#include "ir/graph/text.h"
#include "ir/graph/verify.h"

namespace braze::fuzz {
namespace {

constexpr uint64_t kSeeds = 5000;

TEST(Generator, GraphsAreSoundAndRepeatable) {
  std::set<std::string> ops;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Graph graph = random_graph(seed);
    EXPECT_TRUE(verify(graph).empty()) << to_text(graph);
    EXPECT_EQ(graph.hash(), random_graph(seed).hash());
    for (size_t i = 0; i < graph.size(); ++i) {
      const MapOp* map = graph[NodeId(i)].as<MapOp>();
      ops.emplace(map ? name(map->op) : op_name(graph[NodeId(i)].op));
    }
  }
  for (const ElementwiseInfo& row : elementwise_table())
    EXPECT_EQ(ops.contains(std::string(row.name)), !row.inner) << row.name;
  for (const char* op :
       {"input", "constant", "broadcast", "reshape", "transpose", "slice", "pad", "concat",
        "reverse", "iota", "size", "gather", "scatter_add", "reduce", "dot", "random_bits"})
    EXPECT_TRUE(ops.contains(op)) << op;
}

/// The interpreter is one implementation among those that the reference describes. This holds both
/// of them to account.
TEST(Generator, InterpreterIsWithinTheReference) {
  Coverage coverage;
  int64_t bounded_outputs = 0;
  std::vector<double> medians;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Graph graph = random_graph(seed);
    const std::vector<HostTensor> inputs = random_inputs(graph, seed);
    const std::vector<HostTensor> outputs = interpret(graph, inputs);
    const std::vector<Bounded> expected = reference(graph, inputs);
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Comparison comparison = compare(outputs[i], expected[i]);
      ASSERT_TRUE(comparison.ok) << "seed " << seed << ", output " << i << ": "
                                 << comparison.summary() << "\n"
                                 << to_text(graph);
      coverage += comparison.coverage;
      if (is_exact(graph, graph.outputs()[i].node)) {
        EXPECT_EQ(comparison.coverage.unjudged, 0) << "seed " << seed;
        EXPECT_EQ(comparison.median_ratio, -1) << "an exact output with a bound, seed " << seed;
      } else {
        ++bounded_outputs;
      }
      if (comparison.median_ratio >= 0) medians.push_back(comparison.median_ratio);
    }
  }
  std::sort(medians.begin(), medians.end());
  const double median = medians[medians.size() / 2];
  printf(
      "%lld elements judged, %.2f%% not; %lld not finite; %lld outputs with a bound, median error "
      "%.3f of it\n",
      static_cast<long long>(coverage.judged), 100 * (1 - coverage.share()),
      static_cast<long long>(coverage.nonfinite), static_cast<long long>(bounded_outputs), median);
  // Between 98.9 and 99.1 %, as the generator draws.
  EXPECT_GT(coverage.share(), 0.985);
  EXPECT_GT(median, 0.005);
}

}  // namespace
}  // namespace braze::fuzz
