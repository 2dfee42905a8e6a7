#include "compiler/planning/updates.h"

#include <algorithm>
#include <optional>
#include <ranges>

#include "compiler/loops/build.h"
#include "compiler/loops/rules/facts.h"
#include "compiler/loops/rules/rules.h"

namespace braze {

namespace {

class Decision {
 public:
  Decision(const LoopForms& forms, const std::vector<Fusion>& fusions, const Target& target)
      : forms_(forms), graph_(forms.graph()), fusions_(fusions), target_(target) {
    for (size_t k = 0; k < fusions.size(); ++k) {
      for (NodeId output : fusions[k].outputs) writer_[output] = k;
      for (NodeId input : fusions[k].inputs) readers_[input].push_back(k);
    }
    updates_.aliases.resize(fusions.size());
    trees_.resize(fusions.size());
    before_.resize(fusions.size());
  }

  Updates run() {
    std::set<NodeId> taken;
    for (uint32_t o = 0; o < graph_.outputs().size(); ++o) {
      const GraphOutput& output = graph_.outputs()[o];
      if (!output.updates || !writer_.contains(output.node) || !taken.insert(output.node).second)
        continue;
      const NodeId input = graph_.inputs()[*output.updates];
      if (in_place(input, output.node)) updates_.in_place.insert(o);
    }
    return std::move(updates_);
  }

 private:
  bool in_place(NodeId input, NodeId output) {
    const size_t writer = writer_.at(output);
    if (reads(writer, input) &&
        (!elementwise(writer, input, output) || !can_overwrite(writer, input, output)))
      return false;
    const auto readers = readers_.find(input);
    if (readers != readers_.end()) {
      const auto other = [&](size_t k) { return k != writer; };
      for (const size_t k : readers->second | std::views::filter(other))
        if (depends(k, writer)) return false;
      for (const size_t k : readers->second | std::views::filter(other)) {
        updates_.orders.emplace_back(k, writer);
        before_[writer].push_back(k);
      }
    }
    if (reads(writer, input)) updates_.aliases[writer].emplace(input, output);
    return true;
  }

  bool reads(size_t k, NodeId node) const {
    const auto readers = readers_.find(node);
    return readers != readers_.end() && std::ranges::binary_search(readers->second, k);
  }

  // Whether Fusion `later` needs a value of `earlier`, or must wait for it.
  bool depends(size_t later, size_t earlier) const {
    std::vector<size_t> open{later};
    std::vector<bool> seen(fusions_.size());
    while (!open.empty()) {
      const size_t k = open.back();
      open.pop_back();
      if (k == earlier) return true;
      if (seen[k]) continue;
      seen[k] = true;
      for (const auto* needed : {&fusions_[k].inputs, &fusions_[k].after})
        for (NodeId value : *needed)
          if (const auto found = writer_.find(value); found != writer_.end())
            open.push_back(found->second);
      open.insert(open.end(), before_[k].begin(), before_[k].end());
    }
    return false;
  }

  // The tree of a kernel whose inputs and outputs are apart.
  const LoopTree& tree_of(size_t k) {
    if (!trees_[k]) trees_[k] = build_loops(forms_, fusions_[k], "update");
    return *trees_[k];
  }

  // Whether the kernel reads the input only where it stores the output, and there only at the place
  // of the store. A placed reduction may also begin with the value at that place.
  bool elementwise(size_t k, NodeId input, NodeId output) {
    const LoopTree& tree = tree_of(k);
    const auto is = [&](size_t tensor, NodeId node) { return tree.tensors[tensor].node == node; };
    std::vector<const Loop*> loops;
    std::optional<Expr> place;
    for_each_task(tree.phases[0],
                  [&](const LoopTask& task, const std::vector<const Loop*>& around) {
                    if (task.makes_value() || !is(task.target, output)) return;
                    loops = around;
                    place = linear_offset(task.at, tree.tensors[task.target].type.shape);
                  });
    if (!place) return false;
    bool out = true;
    for_each_task(tree.phases[0],
                  [&](const LoopTask& task, const std::vector<const Loop*>& around) {
                    const bool beside = !task.makes_value() && around == loops;
                    for (const LoopStep& s : task.body.steps) {
                      if (s.kind != LoopStep::Kind::Load || !is(s.source, input)) continue;
                      out = out && (beside || task.kind == LoopTask::Kind::Place) &&
                            linear_offset(s.at, tree.tensors[s.source].type.shape) == *place;
                      for (const Expr& e : s.at)
                        for (const std::string& symbol : e.symbols())
                          out = out && !loaded_step(symbol);
                    }
                  });
    return out;
  }

  // Whether a rule can schedule the kernel with both in one memory. The loops of a nest need no
  // other order for that.
  bool can_overwrite(size_t k, NodeId input, NodeId output) {
    if (nest_axes(tree_of(k))) return true;
    auto aliases = updates_.aliases[k];
    aliases.emplace(input, output);
    const auto made = schedule(build_loops(forms_, fusions_[k], "update", aliases), target_);
    return std::holds_alternative<Scheduled>(made);
  }

  const LoopForms& forms_;
  const Graph& graph_;
  const std::vector<Fusion>& fusions_;
  const Target& target_;
  std::map<NodeId, size_t> writer_;
  std::map<NodeId, std::vector<size_t>> readers_;  // the readers of each input, in order
  std::vector<std::optional<LoopTree>> trees_;
  std::vector<std::vector<size_t>> before_;  // fusions besides makers that must run first
  Updates updates_;
};

}  // namespace

Updates decide_updates(const LoopForms& forms, const std::vector<Fusion>& fusions,
                       const Target& target) {
  return Decision(forms, fusions, target).run();
}

}  // namespace braze
