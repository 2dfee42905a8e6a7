#include "compiler/passes/split_concats.h"

#include <algorithm>

#include "ir/graph/build.h"
#include "ir/graph/rewrite.h"

namespace braze {

namespace {

NodeId as_tree(const Rewriting& step, const ConcatOp& op) {
  std::vector<NodeId> parts = step.operands;
  while (parts.size() > kMostParts) {
    std::vector<NodeId> joined;
    for (size_t i = 0; i < parts.size(); i += kMostParts) {
      const size_t end = std::min(i + kMostParts, parts.size());
      const std::vector<NodeId> run(parts.begin() + static_cast<ptrdiff_t>(i),
                                    parts.begin() + static_cast<ptrdiff_t>(end));
      joined.push_back(run.size() == 1
                           ? run.front()
                           : build::concat(step.result, run, op.axis, step.node.location));
    }
    parts = std::move(joined);
  }
  return build::concat(step.result, std::move(parts), op.axis, step.node.location);
}

}  // namespace

Graph split_concats(const Graph& graph) {
  return rewrite(graph, [](const Rewriting& step) {
    const auto* concat = step.node.as<ConcatOp>();
    return concat && step.operands.size() > kMostParts ? as_tree(step, *concat) : step.keep();
  });
}

}  // namespace braze
