// loops.h — loop trees of whole graphs, for tests.
#pragma once

#include <map>
#include <vector>

#include "compiler/loops/build.h"
#include "compiler/loops/interpret.h"
#include "ir/graph/check.h"

namespace braze::testing {

/// The whole graph as one kernel.
inline Fusion everything(const LoopForms& forms) {
  Fusion out;
  const Graph& graph = forms.graph();
  for (uint32_t i = 0; i < graph.size(); ++i)
    (forms.find(NodeId{i}) ? out.nodes : out.inputs).push_back(NodeId{i});
  for (const GraphOutput& output : graph.outputs()) out.outputs.push_back(output.node);
  return out;
}

/// The graph's outputs as `tree` computes them; `built`, with the same tensors, knows their nodes.
inline std::vector<HostTensor> run(const LoopTree& tree, const LoopTree& built, const Graph& graph,
                                   const Fusion& fusion, const std::vector<HostTensor>& inputs) {
  std::map<NodeId, const HostTensor*> memory;
  for (size_t i = 0; i < inputs.size(); ++i) memory[graph.inputs()[i]] = &inputs[i];
  for (const NodeId node : fusion.inputs)
    if (const auto* constant = std::get_if<ConstantOp>(&graph[node].op))
      memory[node] = constant->value.get();
  const Sizes sizes = check_inputs(graph, inputs);
  // A tree may see the same memory with other dimensions.
  const auto seen_as = [&](const HostTensor& tensor, const LoopTensor& as) {
    HostTensor out(tensor.dtype(), sizes(as.type.shape));
    for (int64_t k = 0; k < out.numel(); ++k) out.set_bits(k, tensor.get_bits(k));
    return out;
  };
  std::vector<HostTensor> tensors(built.tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i)
    if (built.tensors[i].mode == Mode::In)
      tensors[i] = seen_as(*memory.at(built.tensors[i].node), tree.tensors[i]);
  interpret(tree, sizes, tensors);
  std::map<NodeId, HostTensor> stored;
  for (size_t i = 0; i < tensors.size(); ++i)
    if (built.tensors[i].mode == Mode::Out)
      stored[built.tensors[i].node] = seen_as(tensors[i], built.tensors[i]);
  std::vector<HostTensor> outputs;
  for (const GraphOutput& output : graph.outputs()) {
    const TensorType& type = graph[output.node].type;
    const auto found = stored.find(output.node);
    outputs.push_back(found != stored.end() ? found->second
                                            : HostTensor(type.dtype, sizes(type.shape)));
  }
  return outputs;
}

}  // namespace braze::testing
