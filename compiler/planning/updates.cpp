#include "compiler/planning/updates.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <ranges>

#include "compiler/loops/build.h"
#include "compiler/loops/rules/rules.h"

namespace braze {

namespace {

class Decision {
 public:
  Decision(const LoopForms& forms, const std::vector<PlacedFusion>& fusions, const Target& target)
      : forms_(forms), graph_(forms.graph()), fusions_(fusions), target_(target) {
    for (size_t k = 0; k < fusions.size(); ++k) {
      for (NodeId output : fusions[k].fusion.outputs) writer_[output] = k;
      for (NodeId input : fusions[k].fusion.inputs) readers_[input].push_back(k);
    }
    updates_.aliases.resize(fusions.size());
    loads_.resize(fusions.size());
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
      for (const auto* needed : {&fusions_[k].fusion.inputs, &fusions_[k].fusion.after})
        for (NodeId value : *needed)
          if (const auto found = writer_.find(value); found != writer_.end())
            open.push_back(found->second);
      open.insert(open.end(), before_[k].begin(), before_[k].end());
    }
    return false;
  }

  // What the tasks of one pass load.
  struct Loads {
    std::vector<MemoryAccess> reduces;
    std::vector<std::vector<MemoryAccess>> stores;
    std::optional<std::vector<MemoryAccess>> start;  // that of a placed reduction
  };
  const std::vector<Loads>& loads_of(size_t k) {
    std::vector<Loads>& out = loads_[k];
    if (!out.empty()) return out;
    const auto& [fusion, space] = fusions_[k];
    const auto loads = [&](const SpaceTask& task) { return trace(forms_, fusion, task).loads; };
    for (size_t p = 0; p < space.passes.size(); ++p) {
      const Pass& pass = space.passes[p];
      Loads& of_pass = out.emplace_back();
      for (const SpaceTask& task : pass.reduces)
        std::ranges::move(loads(task), std::back_inserter(of_pass.reduces));
      for (const SpaceTask& task : pass.stores) of_pass.stores.push_back(loads(task));
      if (space.placed && space.placed->pass == p)
        of_pass.start = loads(start_of(forms_, pass.reduces.front()));
    }
    return out;
  }

  // Whether the kernel reads the input only in the pass that writes the output, and there only at
  // the index of the store. A placed reduction may also read it before that pass, as the value with
  // which it begins.
  bool elementwise(size_t k, NodeId input, NodeId output) {
    const auto elsewhere = [&](const std::vector<MemoryAccess>& loads, const Expr* stored) {
      return std::ranges::any_of(loads, [&](const MemoryAccess& load) {
        return load.node == input &&
               !(stored && linear_offset(load.at, graph_[input].type.shape) == *stored);
      });
    };
    bool written = false;
    const std::vector<MemoryAccess>* start = nullptr;
    const std::vector<Loads>& loads = loads_of(k);
    for (size_t p = 0; p < loads.size(); ++p) {
      const Pass& pass = fusions_[k].space.passes[p];
      const auto store = std::ranges::find(pass.stores, output, &SpaceTask::node);
      std::optional<Expr> offset;
      if (store != pass.stores.end()) offset = linear_offset(store->at, graph_[output].type.shape);
      const Expr* const stored = offset ? &*offset : nullptr;
      if (loads[p].start) {
        if (written) return false;
        start = &*loads[p].start;
      }
      if (start && stored && elsewhere(*start, stored)) return false;
      written = written || stored;
      if (elsewhere(loads[p].reduces, nullptr)) return false;
      for (const auto& of_store : loads[p].stores)
        if (elsewhere(of_store, stored)) return false;
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
  std::map<NodeId, std::vector<size_t>> readers_;  // the readers of each input, in order
  std::vector<std::vector<Loads>> loads_;          // for each fusion and pass
  std::vector<std::vector<size_t>> before_;        // fusions besides makers that must run first
  Updates updates_;
};

}  // namespace

Updates decide_updates(const LoopForms& forms, const std::vector<PlacedFusion>& fusions,
                       const Target& target) {
  return Decision(forms, fusions, target).run();
}

}  // namespace braze
