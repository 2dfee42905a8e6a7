#include "compiler/fusion/partition.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "compiler/fusion/reasons.h"
#include "ir/support/text.h"

namespace braze {

namespace {

// A value that several kernels need is computed in each of them up to this many operations an
// element.
constexpr double kCheapFlops = 4;

struct Candidate {
  Fusion fusion;
  std::set<NodeId> roots;  // values with a reason to exist: reductions, outputs, costly shared ones
  std::optional<Space> space;
  Cost cost;
  bool alive = true;
};

struct Merge {
  std::optional<Candidate> merged;
  const Code* refusal = nullptr;
  std::string detail;
  double saving = 0;
};

class Search {
 public:
  Search(const LoopForms& forms, const Target& target, const PartitionOptions& options)
      : forms_(forms),
        graph_(forms.graph()),
        target_(target),
        options_(options),
        users_(graph_.size()),
        live_(graph_.size()),
        output_(graph_.size()) {}

  Partition run() {
    mark_live();
    make_kernels();
    if (options_.fuse) merge_all();
    Partition result;
    for (size_t k : schedule_order()) {
      if (kernels_[k].fusion.outputs.empty()) continue;  // nothing to compute
      result.fusions.push_back(kernels_[k].fusion);
      result.costs.push_back(kernels_[k].cost);
    }
    result.edges = explain_edges();
    return result;
  }

 private:
  bool is_source(NodeId node) const {
    return graph_[node].as<InputOp>() || (graph_[node].as<ConstantOp>() && !forms_.find(node));
  }

  bool is_empty(NodeId node) const { return graph_[node].type.shape.numel().is_constant(0); }

  void mark_live() {
    for (const GraphOutput& output : graph_.outputs()) {
      live_[output.node.index] = true;
      output_[output.node.index] = true;
    }
    for (size_t i = graph_.size(); i-- > 0;) {
      if (!live_[i]) continue;
      for (NodeId operand : graph_[NodeId(i)].operands) {
        live_[operand.index] = true;
        users_[operand.index].push_back(NodeId(i));
      }
    }
  }

  // --- First kernels --------------------------------------------------------------------------

  void make_kernels() {
    std::vector<bool> root(graph_.size());
    const std::vector<bool> reread = reread_values();
    std::vector<bool> everything(graph_.size());
    for (size_t i = 0; i < graph_.size(); ++i)
      everything[i] = live_[i] && !is_source(NodeId(i)) && forms_.find(NodeId(i)) &&
                      !forms_.find(NodeId(i))->reduces();
    for (size_t i = 0; i < graph_.size(); ++i) {
      const NodeId node(i);
      if (!live_[i] || is_source(node)) continue;
      const LoopForm* form = forms_.find(node);
      root[i] = !form || form->reduces() || output_[i] || reread[i] ||
                (!options_.fuse && computes(*form));
      if (!root[i] && distinct_users(node) > 1) {
        // Through what is a root already, so that a chain is counted once.
        std::vector<bool> inside = everything;
        for (size_t j = 0; j < i; ++j)
          if (root[j]) inside[j] = false;
        root[i] = recompute_flops(forms_, inside, node) > kCheapFlops;
      }
    }
    kernel_of_.assign(graph_.size(), SIZE_MAX);
    for (size_t i = 0; i < graph_.size(); ++i) {
      if (!root[i]) continue;
      kernel_of_[i] = kernels_.size();
      Candidate kernel;
      kernel.roots = {NodeId(i)};
      collect(NodeId(i), root, kernel.fusion.nodes);
      std::sort(kernel.fusion.nodes.begin(), kernel.fusion.nodes.end());
      kernels_.push_back(std::move(kernel));
    }
    for (Candidate& kernel : kernels_) {
      finish(kernel);
      measure(kernel);
    }
  }

  static bool computes(const LoopForm& form) {
    return std::any_of(form.body.begin(), form.body.end(),
                       [](const BodyStep& s) { return s.kind == BodyStep::Kind::Apply; });
  }

  // Values that a contraction reads again and again. Computed inside it they would be computed as
  // often; as kernels of their own they can join what makes their operands.
  std::vector<bool> reread_values() const {
    std::vector<bool> reread(graph_.size());
    for (size_t i = 0; i < graph_.size(); ++i) {
      const LoopForm* form = live_[i] ? forms_.find(NodeId(i)) : nullptr;
      if (!form || !form->reduces()) continue;
      for (const BodyStep& step : form->body) {
        if (step.kind != BodyStep::Kind::Load || !leaves_axis_out(*form, step)) continue;
        NodeId operand = graph_[NodeId(i)].operands[step.operand];
        // Through index maps to the value that is computed.
        while (!is_source(operand) && forms_.find(operand) && !forms_.find(operand)->reduces() &&
               !computes(*forms_.find(operand)) && !graph_[operand].operands.empty())
          operand = graph_[operand].operands[0];
        const LoopForm* body = is_source(operand) ? nullptr : forms_.find(operand);
        reread[operand.index] = body && !body->reduces() && computes(*body);
      }
    }
    return reread;
  }

  static bool leaves_axis_out(const LoopForm& form, const BodyStep& load) {
    const auto unused = [&](char letter, const std::vector<Expr>& extents) {
      for (size_t axis = 0; axis < extents.size(); ++axis) {
        const std::string symbol = letter + std::to_string(axis);
        const bool used = std::any_of(load.index.begin(), load.index.end(),
                                      [&](const Expr& e) { return e.uses(symbol); });
        if (!used && !extents[axis].is_constant(1)) return true;
      }
      return false;
    };
    return unused('d', form.domain) || unused('r', form.reduction);
  }

  size_t distinct_users(NodeId node) const {
    return std::set<NodeId>(users_[node.index].begin(), users_[node.index].end()).size();
  }

  void collect(NodeId node, const std::vector<bool>& root, std::vector<NodeId>& nodes) const {
    if (is_source(node) || std::find(nodes.begin(), nodes.end(), node) != nodes.end()) return;
    nodes.push_back(node);
    for (NodeId operand : graph_[node].operands)
      if (!root[operand.index]) collect(operand, root, nodes);
  }

  // Inputs and outputs that follow from the nodes.
  void finish(Candidate& kernel) const {
    const std::vector<bool> inside = membership(graph_, kernel.fusion.nodes);
    std::set<NodeId> inputs;
    for (NodeId node : kernel.fusion.nodes)
      for (NodeId operand : graph_[node].operands)
        if (!inside[operand.index]) inputs.insert(operand);
    kernel.fusion.inputs.assign(inputs.begin(), inputs.end());
    kernel.fusion.outputs.clear();
    for (NodeId root : kernel.roots) {
      if (is_empty(root)) continue;
      const bool used_outside = std::any_of(
          users_[root.index].begin(), users_[root.index].end(),
          [&](NodeId user) { return !inside[user.index] || computed_elsewhere(user, kernel); });
      if (output_[root.index] || used_outside) kernel.fusion.outputs.push_back(root);
    }
  }

  // A cheap node of this kernel may be computed in others too; those read the root from memory.
  bool computed_elsewhere(NodeId user, const Candidate& kernel) const {
    for (const Candidate& other : kernels_) {
      if (!other.alive || &other == &kernel || is_part(other, kernel)) continue;
      if (std::binary_search(other.fusion.nodes.begin(), other.fusion.nodes.end(), user))
        return true;
    }
    return false;
  }
  static bool is_part(const Candidate& other, const Candidate& kernel) {
    return std::includes(kernel.roots.begin(), kernel.roots.end(), other.roots.begin(),
                         other.roots.end());
  }

  // Space and cost; false with a refusal if there is no space.
  const Code* measure(Candidate& kernel, std::string* detail = nullptr) const {
    if (kernel.fusion.outputs.empty()) {
      kernel.space.reset();
      return &reasons::kNoLoopForm;
    }
    if (std::any_of(kernel.fusion.nodes.begin(), kernel.fusion.nodes.end(),
                    [&](NodeId n) { return !forms_.find(n); })) {
      kernel.space.reset();
      return &reasons::kNoLoopForm;
    }
    auto found = find_space(forms_, kernel.fusion);
    if (const auto* none = std::get_if<NoSpace>(&found)) {
      if (detail) *detail = fmt::format("%{} and %{}", none->first.index, none->second.index);
      return none->code;
    }
    kernel.space = std::get<Space>(std::move(found));
    kernel.cost = estimate(forms_, kernel.fusion, *kernel.space, target_);
    return nullptr;
  }

  // --- Merging --------------------------------------------------------------------------------

  bool feeds(const Candidate& a, const Candidate& b) const {
    return std::any_of(a.fusion.outputs.begin(), a.fusion.outputs.end(), [&](NodeId n) {
      return std::find(b.fusion.inputs.begin(), b.fusion.inputs.end(), n) != b.fusion.inputs.end();
    });
  }

  bool share_input(const Candidate& a, const Candidate& b) const {
    return std::any_of(a.fusion.inputs.begin(), a.fusion.inputs.end(), [&](NodeId n) {
      return std::find(b.fusion.inputs.begin(), b.fusion.inputs.end(), n) != b.fusion.inputs.end();
    });
  }

  // Whether b can be reached from a through at least one other kernel.
  bool reaches_around(size_t a, size_t b) const {
    std::vector<size_t> open;
    std::vector<bool> seen(kernels_.size());
    for (size_t k = 0; k < kernels_.size(); ++k)
      if (k != a && k != b && kernels_[k].alive && feeds(kernels_[a], kernels_[k]))
        open.push_back(k);
    while (!open.empty()) {
      const size_t k = open.back();
      open.pop_back();
      if (seen[k]) continue;
      seen[k] = true;
      if (feeds(kernels_[k], kernels_[b])) return true;
      for (size_t next = 0; next < kernels_.size(); ++next)
        if (next != a && next != b && kernels_[next].alive && !seen[next] &&
            feeds(kernels_[k], kernels_[next]))
          open.push_back(next);
    }
    return false;
  }

  Merge try_merge(size_t a, size_t b) const {
    const Candidate& first = kernels_[a];
    const Candidate& second = kernels_[b];
    if (!first.space || !second.space) return {{}, &reasons::kNoLoopForm, {}, 0};
    if (reaches_around(a, b) || reaches_around(b, a)) return {{}, &reasons::kCycle, {}, 0};
    Candidate merged;
    std::set_union(first.fusion.nodes.begin(), first.fusion.nodes.end(),
                   second.fusion.nodes.begin(), second.fusion.nodes.end(),
                   std::back_inserter(merged.fusion.nodes));
    merged.roots = first.roots;
    merged.roots.insert(second.roots.begin(), second.roots.end());
    finish(merged);
    std::string detail;
    if (const Code* refusal = measure(merged, &detail)) return {{}, refusal, detail, 0};
    const double apart = first.cost.seconds + second.cost.seconds;
    const double saving = apart - merged.cost.seconds;
    detail =
        fmt::format("apart {:.3g} us, fused {:.3g} us", apart * 1e6, merged.cost.seconds * 1e6);
    if (saving <= 0) {
      const bool starved =
          merged.cost.instances <
          std::min<double>(target_.cores, std::max(first.cost.instances, second.cost.instances));
      const bool recomputes = merged.cost.flops > 1.25 * (first.cost.flops + second.cost.flops);
      return {{},
              starved      ? &reasons::kParallelism
              : recomputes ? &reasons::kRecomputeCost
                           : &reasons::kCost,
              detail,
              saving};
    }
    return {std::move(merged), nullptr, detail, saving};
  }

  void merge_all() {
    // Savings are kept until one of the two kernels changes.
    std::map<std::pair<size_t, size_t>, Merge> known;
    while (true) {
      std::pair<size_t, size_t> best_pair;
      double best = 0;
      for (size_t a = 0; a < kernels_.size(); ++a) {
        if (!kernels_[a].alive) continue;
        for (size_t b = a + 1; b < kernels_.size(); ++b) {
          if (!kernels_[b].alive) continue;
          if (!feeds(kernels_[a], kernels_[b]) && !feeds(kernels_[b], kernels_[a]) &&
              !share_input(kernels_[a], kernels_[b]))
            continue;
          const auto key = std::pair(a, b);
          auto found = known.find(key);
          if (found == known.end()) found = known.emplace(key, try_merge(a, b)).first;
          if (found->second.merged && found->second.saving > best) {
            best = found->second.saving;
            best_pair = key;
          }
        }
      }
      if (best <= 0) return;
      const auto [a, b] = best_pair;
      if (reaches_around(a, b) || reaches_around(b, a)) {  // another merge has closed a path since
        known.at(best_pair) = {{}, &reasons::kCycle, {}, 0};
        continue;
      }
      Candidate merged = std::move(*known.at(best_pair).merged);
      kernels_[a].alive = kernels_[b].alive = false;
      for (NodeId root : merged.roots) kernel_of_[root.index] = kernels_.size();
      kernels_.push_back(std::move(merged));
      // What was recomputed in several kernels may now be in one: outputs can shrink everywhere.
      for (Candidate& kernel : kernels_)
        if (kernel.alive) finish(kernel);
      std::erase_if(known, [&](const auto& entry) {
        return entry.first.first == a || entry.first.second == a || entry.first.first == b ||
               entry.first.second == b || (entry.second.refusal == &reasons::kCycle);
      });
    }
  }

  // --- Results --------------------------------------------------------------------------------

  std::vector<size_t> schedule_order() const {
    std::vector<size_t> order;
    std::vector<bool> done(kernels_.size());
    const std::function<void(size_t)> visit = [&](size_t k) {
      if (done[k]) return;
      done[k] = true;
      for (NodeId input : kernels_[k].fusion.inputs)
        if (kernel_of_[input.index] != SIZE_MAX) visit(kernel_of_[input.index]);
      order.push_back(k);
    };
    for (size_t k = 0; k < kernels_.size(); ++k)
      if (kernels_[k].alive) visit(k);
    return order;
  }

  std::vector<EdgeReason> explain_edges() const {
    std::vector<EdgeReason> edges;
    std::map<std::pair<size_t, size_t>, Merge> verdicts;
    for (size_t i = 0; i < graph_.size(); ++i) {
      const NodeId consumer(i);
      if (!live_[i]) continue;
      for (NodeId producer :
           std::set<NodeId>(graph_[consumer].operands.begin(), graph_[consumer].operands.end()))
        edges.push_back(explain(producer, consumer, verdicts));
    }
    return edges;
  }

  EdgeReason explain(NodeId producer, NodeId consumer,
                     std::map<std::pair<size_t, size_t>, Merge>& verdicts) const {
    if (is_source(producer)) return {producer, consumer, &reasons::kFromInput, {}};
    int inside = 0;
    std::vector<size_t> apart;
    for (size_t k = 0; k < kernels_.size(); ++k) {
      const auto& nodes = kernels_[k].fusion.nodes;
      if (!kernels_[k].alive || !std::binary_search(nodes.begin(), nodes.end(), consumer)) continue;
      if (std::binary_search(nodes.begin(), nodes.end(), producer))
        ++inside;
      else
        apart.push_back(k);
    }
    if (kernel_of_[producer.index] == SIZE_MAX) {
      const size_t homes = static_cast<size_t>(
          std::count_if(kernels_.begin(), kernels_.end(), [&](const Candidate& k) {
            return k.alive &&
                   std::binary_search(k.fusion.nodes.begin(), k.fusion.nodes.end(), producer);
          }));
      return {producer, consumer, homes > 1 ? &reasons::kRecomputed : &reasons::kInlined, {}};
    }
    if (apart.empty()) return {producer, consumer, &reasons::kFused, {}};
    const auto key = std::pair(kernel_of_[producer.index], apart.front());
    auto found = verdicts.find(key);
    if (found == verdicts.end()) {
      Merge verdict =
          options_.fuse ? try_merge(key.first, key.second) : Merge{{}, &reasons::kNotAsked, {}, 0};
      found = verdicts.emplace(key, std::move(verdict)).first;
    }
    const Code* code = found->second.refusal ? found->second.refusal : &reasons::kCost;
    return {producer, consumer, code, found->second.detail};
  }

  const LoopForms& forms_;
  const Graph& graph_;
  const Target& target_;
  const PartitionOptions& options_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<bool> live_, output_;
  std::vector<Candidate> kernels_;
  std::vector<size_t> kernel_of_;  // of roots
};

std::string node_text(const Graph& graph, NodeId node) {
  std::string out = fmt::format("%{} {}", node.index, op_name(graph[node].op));
  if (const auto* input = graph[node].as<InputOp>()) out = "%" + input->name;
  if (!graph[node].label.empty()) out += fmt::format(" \"{}\"", graph[node].label);
  return out;
}

}  // namespace

Partition partition(const LoopForms& forms, const Target& target, const PartitionOptions& options) {
  return Search(forms, target, options).run();
}

std::string to_text(const Graph& graph, const Partition& partition) {
  std::string out;
  for (size_t k = 0; k < partition.fusions.size(); ++k) {
    const Fusion& fusion = partition.fusions[k];
    out += fmt::format("kernel {}: {}\n", k, partition.costs[k].to_string());
    for (NodeId node : fusion.nodes) {
      const std::string where = graph[node].location.to_string();
      out += fmt::format("  {} : {}{}\n", node_text(graph, node), graph[node].type.to_string(),
                         where.empty() ? "" : "  at " + where);
    }
  }
  out += "edges:\n";
  for (const EdgeReason& edge : partition.edges)
    out += fmt::format("  {} -> {}: {}{}\n", node_text(graph, edge.producer),
                       node_text(graph, edge.consumer), edge.code->name,
                       edge.detail.empty() ? "" : " (" + edge.detail + ")");
  return out;
}

}  // namespace braze
