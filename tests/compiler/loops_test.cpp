// Loop trees of whole graphs, run as they stand: what is read is finished, and the values are
// right.
#include <gtest/gtest.h>

#include "compiler/loops/build.h"
#include "compiler/loops/interpret.h"
#include "compiler/loops/text.h"
#include "compiler/loops/verify.h"
#include "ir/graph/check.h"
#include "ir/graph/sizes.h"
#include "ir/graph/text.h"
#include "tests/fuzz/generator.h"

namespace braze {
namespace {

// The whole graph as one kernel.
Fusion everything(const LoopForms& forms) {
  Fusion out;
  const Graph& graph = forms.graph();
  for (uint32_t i = 0; i < graph.size(); ++i)
    (forms.find(NodeId{i}) ? out.nodes : out.inputs).push_back(NodeId{i});
  for (const GraphOutput& output : graph.outputs()) out.outputs.push_back(output.node);
  return out;
}

void expect_right(const Graph& graph, const std::vector<HostTensor>& inputs) {
  const LoopForms forms(graph);
  const Fusion fusion = everything(forms);
  const LoopTree built = build_loops(forms, fusion, graph.name());
  const std::string text = to_text(built);
  SCOPED_TRACE(to_text(graph) + text);
  EXPECT_EQ(verify(built).size(), 0u) << verify(built)[0].to_string();
  // What is run is what the text says.
  LoopTree tree = built;
  try {
    tree = parse_loops(text, "printed text");
  } catch (const Error& error) {
    FAIL() << error.what();
  }
  EXPECT_EQ(to_text(tree), text);
  std::map<NodeId, const HostTensor*> memory;
  for (size_t i = 0; i < inputs.size(); ++i) memory[graph.inputs()[i]] = &inputs[i];
  for (const NodeId node : fusion.inputs)
    if (const auto* constant = std::get_if<ConstantOp>(&graph[node].op))
      memory[node] = constant->value.get();
  const Sizes sizes = check_inputs(graph, inputs);
  std::vector<HostTensor> tensors(built.tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i)
    if (built.tensors[i].mode == Mode::In) tensors[i] = *memory.at(built.tensors[i].node);
  try {
    interpret(tree, sizes, tensors);
  } catch (const Error& error) {
    FAIL() << error.what();
  }
  std::map<NodeId, HostTensor> stored;
  for (size_t i = 0; i < tensors.size(); ++i)
    if (built.tensors[i].mode == Mode::Out) stored[built.tensors[i].node] = tensors[i];
  std::vector<HostTensor> outputs;
  for (const GraphOutput& output : graph.outputs()) {
    const TensorType& type = graph[output.node].type;
    const auto found = stored.find(output.node);
    outputs.push_back(found != stored.end() ? found->second
                                            : HostTensor(type.dtype, sizes(type.shape)));
  }
  const CheckResult result = check_outputs(graph, inputs, outputs);
  EXPECT_TRUE(result.ok) << result.summary();
}

TEST(Loops, OfRandomGraphsComputeWhatTheGraphsSay) {
  for (uint64_t seed = 0; seed < 2000 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Graph graph = fuzz::random_graph(seed, {.max_elements = 256, .max_products = 4096});
    expect_right(graph, fuzz::random_inputs(graph, seed));
  }
}

}  // namespace
}  // namespace braze
