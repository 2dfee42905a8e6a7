#include "compiler/passes/interchange_sums.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "ir/graph/build.h"
#include "ir/graph/interchange.h"
#include "ir/graph/rewrite.h"

namespace braze {

Graph interchange_sums(const Graph& graph) {
  std::unordered_map<uint32_t, Interchange> forms;  // by sum, the first one of each
  for (Interchange& form : find_interchanges(graph))
    if (form.verdict == &interchanges::kInterchanged)
      forms.try_emplace(form.sum.index, std::move(form));
  if (forms.empty()) return graph;
  std::vector<std::optional<NodeId>> places(graph.size());
  return rewrite(graph, [&](const Rewriting& step) {
    const std::function<NodeId(NodeId)> place = [&](NodeId id) {
      std::optional<NodeId>& found = places[id.index];
      if (found) return *found;
      const Node& node = graph[id];
      if (const auto* input = node.as<InputOp>()) {
        found = step.result.find_input(input->name);
      } else {
        // The other product may come later. It is the same node then.
        std::vector<NodeId> operands;
        for (const NodeId operand : node.operands) operands.push_back(place(operand));
        found = build::rebuild(step.result, node, std::move(operands));
      }
      return *found;
    };
    const auto form = forms.find(step.id.index);
    const NodeId out =
        form == forms.end() ? step.keep() : interchanged(step.result, graph, form->second, place);
    places[step.id.index] = out;
    return out;
  });
}

}  // namespace braze
