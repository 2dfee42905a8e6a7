#include "compiler/planning/updates.h"

#include <algorithm>
#include <optional>

#include "compiler/loops/build.h"
#include "compiler/loops/rules/rules.h"

namespace braze {

namespace {

class Decision {
 public:
  Decision(const LoopForms& forms, const std::vector<PlacedFusion>& fusions, const Target& target)
      : forms_(forms), graph_(forms.graph()), fusions_(fusions), target_(target) {
    for (size_t k = 0; k < fusions.size(); ++k)
      for (NodeId output : fusions[k].fusion.outputs) writer_[output] = k;
    updates_.aliases.resize(fusions.size());
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
    const size_t before = updates_.orders.size();
    for (size_t k = 0; k < fusions_.size(); ++k) {
      if (k == writer || !reads(k, input)) continue;
      if (depends(k, writer)) {
        updates_.orders.resize(before);
        return false;
      }
      updates_.orders.emplace_back(k, writer);
    }
    if (reads(writer, input)) updates_.aliases[writer].emplace(input, output);
    return true;
  }

  bool reads(size_t k, NodeId node) const {
    const auto& inputs = fusions_[k].fusion.inputs;
    return std::find(inputs.begin(), inputs.end(), node) != inputs.end();
  }

  // Whether Fusion `later` needs a value of `earlier`, or must wait for it.
  bool depends(size_t later, size_t earlier) const {
    std::vector<size_t> open{later};
    std::set<size_t> seen;
    while (!open.empty()) {
      const size_t k = open.back();
      open.pop_back();
      if (k == earlier) return true;
      if (!seen.insert(k).second) continue;
      for (const auto* needed : {&fusions_[k].fusion.inputs, &fusions_[k].fusion.after})
        for (NodeId value : *needed)
          if (const auto found = writer_.find(value); found != writer_.end())
            open.push_back(found->second);
      for (const auto& [reader, writer] : updates_.orders)
        if (writer == k) open.push_back(reader);
    }
    return false;
  }

  // Whether the kernel reads the input only in the pass that writes the output, and there only at
  // the index of the store. A placed reduction may also read it before that pass, as the value with
  // which it begins.
  bool elementwise(size_t k, NodeId input, NodeId output) const {
    const PlacedFusion& placed_fusion = fusions_[k];
    const auto loads_elsewhere = [&](const SpaceTask& task, const Expr* stored) {
      const auto loads = trace(forms_, placed_fusion.fusion, task).loads;
      return std::any_of(loads.begin(), loads.end(), [&](const MemoryAccess& load) {
        return load.node == input &&
               !(stored && linear_offset(load.at, graph_[input].type.shape) == *stored);
      });
    };
    bool written = false;
    std::optional<SpaceTask> start;
    for (const Pass& pass : placed_fusion.space.passes) {
      const auto store = std::find_if(pass.stores.begin(), pass.stores.end(),
                                      [&](const SpaceTask& t) { return t.node == output; });
      std::optional<Expr> stored;
      if (store != pass.stores.end()) stored = linear_offset(store->at, graph_[output].type.shape);
      const auto& placed = placed_fusion.space.placed;
      if (placed && &pass == &placed_fusion.space.passes[placed->pass]) {
        if (written) return false;
        start = start_of(forms_, pass.reduces.front());
      }
      if (start && stored && loads_elsewhere(*start, &*stored)) return false;
      written = written || stored;
      for (const SpaceTask& task : pass.reduces)
        if (loads_elsewhere(task, nullptr)) return false;
      for (const SpaceTask& task : pass.stores)
        if (loads_elsewhere(task, stored ? &*stored : nullptr)) return false;
    }
    return written;
  }

  // Whether a rule can schedule the kernel with both in one memory. In a loop tree, loops side by
  // side may come in another order than the passes of the space.
  bool can_overwrite(size_t k, NodeId input, NodeId output) const {
    if (is_pointwise(fusions_[k].space)) return true;
    auto aliases = updates_.aliases[k];
    aliases.emplace(input, output);
    const auto made = schedule(build_loops(forms_, fusions_[k].fusion, "update", aliases), target_);
    return std::holds_alternative<Scheduled>(made);
  }

  const LoopForms& forms_;
  const Graph& graph_;
  const std::vector<PlacedFusion>& fusions_;
  const Target& target_;
  std::map<NodeId, size_t> writer_;
  Updates updates_;
};

}  // namespace

Updates decide_updates(const LoopForms& forms, const std::vector<PlacedFusion>& fusions,
                       const Target& target) {
  return Decision(forms, fusions, target).run();
}

}  // namespace braze
