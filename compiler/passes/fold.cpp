#include "compiler/passes/fold.h"

#include <algorithm>

#include "ir/graph/build.h"
#include "ir/graph/interpret.h"
#include "ir/graph/rewrite.h"

namespace braze {

namespace {

constexpr int64_t kMostElements = 4096;

bool is_worth_folding(const Graph& graph, const Node& node, const std::vector<NodeId>& operands) {
  if (node.as<BroadcastOp>() || operands.empty() || !node.type.shape.is_static()) return false;
  const auto elements = node.type.shape.numel().as_constant();
  if (!elements || *elements > kMostElements) return false;
  // The values of other devices are not known here, nor may functions of the host program be.
  if (node.as<CollectiveOp>() || node.as<CustomCallOp>()) return false;
  // An index out of range is an error in the interpreter, but devices clamp it.
  if (node.as<GatherOp>() || node.as<ScatterOp>()) return false;
  return std::all_of(operands.begin(), operands.end(),
                     [&](NodeId id) { return graph[id].as<ConstantOp>(); });
}

}  // namespace

Graph fold(const Graph& graph) {
  return rewrite(graph, [](const Rewriting& step) {
    if (!is_worth_folding(step.result, step.node, step.operands)) return step.keep();
    std::vector<const HostTensor*> operands;
    for (NodeId id : step.operands)
      operands.push_back(step.result[id].as<ConstantOp>()->value.get());
    return build::constant(step.result, evaluate(step.node, operands, {}), step.node.location);
  });
}

}  // namespace braze
