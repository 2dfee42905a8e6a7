#include "compiler/planning/updates.h"

#include <algorithm>
#include <optional>
#include <ranges>

#include "compiler/loops/build.h"
#include "compiler/loops/rules/facts.h"
#include "compiler/loops/rules/rules.h"
#include "ir/support/parallel.h"

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
    overwritten_.resize(fusions.size());
    trees_.resize(fusions.size());
    before_.resize(fusions.size());
  }

  Updates run() {
    std::map<uint32_t, NodeId> asked;  // the first of the outputs that are one value, its input
    std::set<NodeId> taken;
    for (uint32_t o = 0; o < graph_.outputs().size(); ++o) {
      const GraphOutput& output = graph_.outputs()[o];
      if (output.updates && writer_.contains(output.node) && taken.insert(output.node).second)
        asked.emplace(o, graph_.inputs()[*output.updates]);
    }
    std::vector<std::vector<Pair>> by_writer(fusions_.size());
    for (const auto& [o, input] : asked) {
      const NodeId output = graph_.outputs()[o].node;
      const size_t writer = writer_.at(output);
      if (reads(writer, input)) by_writer[writer].emplace_back(input, output);
    }
    parallel_for(fusions_.size(), [&](size_t k) { find_overwritten(k, by_writer[k]); });
    for (const auto& [o, input] : asked)
      if (in_place(input, graph_.outputs()[o].node)) updates_.in_place.insert(o);
    return std::move(updates_);
  }

 private:
  using Pair = std::pair<NodeId, NodeId>;  // an input and an output in its place

  bool in_place(NodeId input, NodeId output) {
    const size_t writer = writer_.at(output);
    if (reads(writer, input) && !overwritten_[writer].contains({input, output})) return false;
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
    // A node without loops, as a collective, may read anything at any time.
    if (!std::ranges::all_of(fusions_[k].nodes, [&](NodeId n) { return forms_.find(n); }))
      return false;
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

  // Finds which of the pairs the kernel can hold in one memory each, all at the same time. Usually
  // these are all that it reads and writes element by element, so that one schedule is the proof.
  void find_overwritten(size_t k, const std::vector<Pair>& pairs) {
    std::vector<Pair> candidates;
    for (const auto& [input, output] : pairs)
      if (elementwise(k, input, output)) candidates.emplace_back(input, output);
    std::set<Pair>& out = overwritten_[k];
    out.insert(candidates.begin(), candidates.end());
    if (out.empty() || can_overwrite(k, out)) return;
    out.clear();
    for (const Pair& pair : candidates) {
      out.insert(pair);
      if (!can_overwrite(k, out)) out.erase(pair);
    }
  }

  // Whether a rule can schedule the kernel with each of the pairs in one memory. The loops of a
  // nest need no other order for that.
  bool can_overwrite(size_t k, const std::set<Pair>& pairs) {
    if (nest_axes(tree_of(k))) return true;
    const std::map<NodeId, NodeId> aliases(pairs.begin(), pairs.end());
    const auto made = schedule(build_loops(forms_, fusions_[k], "update", aliases), target_);
    return std::holds_alternative<Scheduled>(made);
  }

  const LoopForms& forms_;
  const Graph& graph_;
  const std::vector<Fusion>& fusions_;
  const Target& target_;
  std::map<NodeId, size_t> writer_;
  std::map<NodeId, std::vector<size_t>> readers_;  // the readers of each input, in order
  std::vector<std::set<Pair>> overwritten_;        // for each fusion
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
