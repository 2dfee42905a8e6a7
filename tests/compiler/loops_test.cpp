// Loop trees of whole graphs, run as they stand: what is read is finished, and the values are
// right.
#include "tests/compiler/loops.h"

#include <gtest/gtest.h>

#include "compiler/loops/text.h"
#include "compiler/loops/verify.h"
#include "ir/graph/text.h"
#include "tests/compiler/run.h"
#include "tests/fuzz/generator.h"

namespace braze {
namespace {

void expect_right(const Graph& graph, const std::vector<HostTensor>& inputs) {
  const LoopForms forms(graph);
  const Fusion fusion = testing::everything(forms);
  const LoopTree built = build_loops(forms, fusion, graph.name());
  const std::string text = to_text(built);
  SCOPED_TRACE(to_text(graph) + text);
  EXPECT_EQ(verify(built).size(), 0u) << verify(built)[0].to_string();
  try {
    // What is run is what the text says.
    const LoopTree tree = parse_loops(text, "printed text");
    EXPECT_EQ(to_text(tree), text);
    const CheckResult result =
        testing::check(graph, inputs, testing::run(tree, built, graph, fusion, inputs));
    EXPECT_TRUE(result.ok) << result.summary();
  } catch (const Error& error) {
    FAIL() << error.what();
  }
}

TEST(Loops, OfRandomGraphsComputeWhatTheGraphsSay) {
  for (uint64_t seed = 0; seed < 2000 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    // A sort is no loop tree, but several kernels.
    const Graph graph =
        fuzz::random_graph(seed, {.max_elements = 256, .max_products = 4096, .sorts = false});
    expect_right(graph, fuzz::random_inputs(graph, seed));
  }
}

}  // namespace
}  // namespace braze
