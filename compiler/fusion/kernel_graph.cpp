#include "compiler/fusion/kernel_graph.h"

#include <algorithm>
#include <iterator>

#include "braze/error.h"

namespace braze {

namespace {

// All readers of one value are tried with each other only if there are at most this many. Without
// the bound, the search would take time proportional to the square of their number.
constexpr size_t kMostReaders = 32;

}  // namespace

KernelGraph::KernelGraph(const LoopForms& forms, const std::vector<bool>& live,
                         const std::vector<bool>& root)
    : forms_(forms),
      graph_(forms.graph()),
      is_output_(graph_.size()),
      kernel_of_(graph_.size(), kNone),
      homes_(graph_.size()),
      read_by_(graph_.size()),
      seen_(graph_.size()) {
  for (const GraphOutput& output : graph_.outputs()) is_output_[output.node.index] = true;
  for (size_t i = 0; i < graph_.size(); ++i)
    if (has_side_effects(graph_[NodeId(i)])) is_output_[i] = true;
  for (size_t i = 0; i < graph_.size(); ++i)
    if (live[i] && root[i]) make_kernel(NodeId(i), root);
  steps_.resize(kernels_.size());
  for (size_t k = 0; k < kernels_.size(); ++k) {
    const NodeId only = kernels_[k].roots.front();
    if (leaves(only, {&k, 1})) kernels_[k].fusion.outputs = {only};
    for (const auto* needed : {&kernels_[k].fusion.inputs, &kernels_[k].fusion.after})
      for (NodeId value : *needed)
        if (kernel_of(value) != kNone)  // a kernel with a lower number
          level_[k] = std::max(level_[k], level_[kernel_of(value)] + 1);
  }
}

bool is_source(const LoopForms& forms, NodeId node) {
  const Node& made = forms.graph()[node];
  return made.operands.empty() && !made.as<CustomCallOp>() && !forms.find(node);
}

bool is_whole_launch(const LoopForms& forms, NodeId node) {
  return !is_source(forms, node) && !forms.find(node);
}

void KernelGraph::make_kernel(NodeId root, const std::vector<bool>& is_root) {
  kernel_of_[root.index] = kernels_.size();
  Candidate kernel;
  kernel.roots = {root};
  ++search_;
  std::vector<NodeId> open{root}, waited;
  seen_[root.index] = search_;
  while (!open.empty()) {
    const NodeId node = open.back();
    open.pop_back();
    kernel.fusion.nodes.push_back(node);
    homes_[node.index].push_back(root);
    const LoopForm* form = forms_.find(node);
    for (uint32_t i = 0; i < graph_[node].operands.size(); ++i) {
      const NodeId operand = graph_[node].operands[i];
      if (form && std::ranges::find(form->waits_for, i) != form->waits_for.end()) {
        // Such an operand is a root or a source. Only the kernels of roots must run before.
        if (is_root[operand.index]) waited.push_back(operand);
        continue;
      }
      if (seen_[operand.index] == search_) continue;
      seen_[operand.index] = search_;
      if (!is_root[operand.index] && !is_source(forms_, operand)) {
        open.push_back(operand);
      } else {
        kernel.fusion.inputs.push_back(operand);
        read_by_[operand.index].push_back(root);
      }
    }
  }
  std::vector<NodeId>& inputs = kernel.fusion.inputs;
  std::sort(kernel.fusion.nodes.begin(), kernel.fusion.nodes.end());
  std::sort(inputs.begin(), inputs.end());
  std::sort(waited.begin(), waited.end());
  waited.erase(std::unique(waited.begin(), waited.end()), waited.end());
  std::ranges::set_difference(waited, inputs, std::back_inserter(kernel.fusion.after));
  for (NodeId value : kernel.fusion.after) read_by_[value.index].push_back(root);
  kernels_.push_back(std::move(kernel));
  alive_.push_back(true);
  level_.push_back(0);
}

std::vector<size_t> KernelGraph::kernels_with(const std::vector<NodeId>& roots) const {
  std::vector<size_t> out;
  for (NodeId root : roots) out.push_back(kernel_of(root));
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

void KernelGraph::add_readers(size_t k, NodeId value, std::vector<NodeId>& roots) const {
  const std::vector<NodeId>& readers = read_by_[value.index];  // in graph order
  if (readers.size() <= kMostReaders) {
    roots.insert(roots.end(), readers.begin(), readers.end());
    return;
  }
  // The nearest kernels on either side. Roots that are now in one kernel count once.
  const auto add_nearest = [&](auto next, auto end) {
    size_t last = k;
    for (size_t added = 0; next != end && added < kMostReaders / 2; ++next) {
      const size_t other = kernel_of(*next);
      if (other == k || other == last) continue;
      last = other;
      roots.push_back(*next);
      ++added;
    }
  };
  const auto middle = std::lower_bound(readers.begin(), readers.end(), kernels_[k].roots.front());
  add_nearest(middle, readers.end());
  add_nearest(std::reverse_iterator(middle), readers.rend());
}

std::vector<size_t> KernelGraph::neighbours(size_t k) const {
  std::vector<NodeId> roots;
  for (NodeId input : kernels_[k].fusion.inputs) {
    if (kernel_of(input) != kNone && !is_empty(input)) roots.push_back(input);
    add_readers(k, input, roots);
  }
  for (NodeId output : kernels_[k].fusion.outputs) add_readers(k, output, roots);
  std::vector<size_t> out = kernels_with(roots);
  std::erase(out, k);
  return out;
}

template <class Visit>
void KernelGraph::each_reader(size_t k, Visit&& visit) const {
  for (NodeId output : kernels_[k].fusion.outputs)
    for (NodeId reader : read_by_[output.index])
      if (kernel_of(reader) != k) visit(kernel_of(reader));
}

bool KernelGraph::reads(size_t reader, size_t maker) const {
  return std::ranges::any_of(kernels_[reader].fusion.inputs,
                             [&](NodeId input) { return kernel_of(input) == maker; });
}

std::optional<std::vector<size_t>> KernelGraph::between(std::span<const size_t> kernels,
                                                        size_t most) const {
  const auto among = [&](size_t k) { return std::ranges::find(kernels, k) != kernels.end(); };
  size_t highest = 0;
  for (const size_t k : kernels) highest = std::max(highest, level_[k]);
  ++search_;
  for (const size_t k : kernels) steps_[k] = 0;
  std::vector<size_t> after;
  std::vector<size_t> open(kernels.begin(), kernels.end());
  size_t longest = 0;  // of the paths from one of these to another: the kernels between
  while (!open.empty() && longest <= most) {
    const size_t k = open.back();
    open.pop_back();
    each_reader(k, [&](size_t reader) {
      if (among(reader)) {
        longest = std::max(longest, steps_[k]);
      } else if (level_[reader] < highest && seen_[reader] != search_) {
        seen_[reader] = search_;
        steps_[reader] = steps_[k] + 1;
        after.push_back(reader);
        open.push_back(reader);
      }
    });
  }
  if (longest > most) return std::nullopt;
  if (longest == 0) return std::vector<size_t>();
  // Readers come after what they read.
  std::ranges::sort(after, {}, [&](size_t k) { return std::pair(level_[k], k); });
  std::vector<size_t> out;
  for (size_t i = after.size(); i-- > 0;) {
    bool found = false;
    each_reader(after[i], [&](size_t reader) {
      found = found || among(reader) || std::ranges::find(out, reader) != out.end();
    });
    if (!found) continue;
    if (out.size() == most) return std::nullopt;
    out.push_back(after[i]);
  }
  std::ranges::sort(out);
  return out;
}

bool KernelGraph::leaves(NodeId root, std::span<const size_t> kernels) const {
  if (is_empty(root) && !has_side_effects(graph_[root])) return false;
  const auto& readers = read_by_[root.index];
  return is_output_[root.index] || std::any_of(readers.begin(), readers.end(), [&](NodeId reader) {
           return std::ranges::find(kernels, kernel_of(reader)) == kernels.end();
         });
}

Candidate KernelGraph::united(std::span<const size_t> kernels) const {
  const auto unite = [&](const auto& list_of) {
    std::vector<NodeId> out;
    for (const size_t k : kernels) {
      const std::vector<NodeId>& list = list_of(kernels_[k]);
      std::vector<NodeId> both;
      std::ranges::set_union(out, list, std::back_inserter(both));
      out = std::move(both);
    }
    return out;
  };
  Candidate merged;
  merged.roots = unite([](const Candidate& k) -> auto& { return k.roots; });
  Fusion& fusion = merged.fusion;
  fusion.nodes = unite([](const Candidate& k) -> auto& { return k.fusion.nodes; });
  const auto contains = [](const std::vector<NodeId>& nodes, NodeId node) {
    return std::binary_search(nodes.begin(), nodes.end(), node);
  };
  fusion.inputs = unite([](const Candidate& k) -> auto& { return k.fusion.inputs; });
  std::erase_if(fusion.inputs, [&](NodeId input) { return contains(fusion.nodes, input); });
  fusion.after = unite([](const Candidate& k) -> auto& { return k.fusion.after; });
  std::erase_if(fusion.after, [&](NodeId value) {
    return contains(fusion.nodes, value) || contains(fusion.inputs, value);
  });
  for (NodeId root : merged.roots)
    if (leaves(root, kernels)) fusion.outputs.push_back(root);
  return merged;
}

size_t KernelGraph::replace(std::span<const size_t> kernels, Candidate merged) {
  const size_t k = kernels_.size();
  for (NodeId root : merged.roots) kernel_of_[root.index] = k;
  size_t level = 0;
  for (const size_t part : kernels) {
    alive_[part] = false;
    level = std::max(level, level_[part]);
  }
  kernels_.push_back(std::move(merged));
  alive_.push_back(true);
  level_.push_back(level);
  if (seen_.size() < kernels_.size()) seen_.resize(kernels_.size());
  steps_.resize(kernels_.size());
  raise_levels_after(k);
  return k;
}

void KernelGraph::raise_levels_after(size_t k) {
  std::vector<size_t> open{k};
  while (!open.empty()) {
    const size_t lower = open.back();
    open.pop_back();
    each_reader(lower, [&](size_t reader) {
      if (level_[reader] > level_[lower]) return;
      level_[reader] = level_[lower] + 1;
      BRAZE_CHECK(level_[reader] < kernels_.size(), "two kernels need results of each other");
      open.push_back(reader);
    });
  }
}

std::vector<size_t> KernelGraph::order() const {
  std::vector<size_t> order, open, firsts;
  for (size_t k = 0; k < kernels_.size(); ++k)
    if (alive_[k]) firsts.push_back(k);
  // Keeps the order of the graph, whichever kernels were merged: values that are written one after
  // the other are usually used in that order, and need not live long then.
  std::ranges::sort(firsts, {}, [&](size_t k) { return kernels_[k].roots.back(); });
  std::vector<bool> entered(kernels_.size()), done(kernels_.size());
  for (const size_t first : firsts) {
    open.push_back(first);
    while (!open.empty()) {
      const size_t k = open.back();
      if (entered[k]) {
        open.pop_back();
        if (!done[k]) order.push_back(k);
        done[k] = true;
        continue;
      }
      entered[k] = true;
      // Kernels that must run before are placed directly before their reader, so that the values
      // which it reads need not live long.
      for (const auto* needed : {&kernels_[k].fusion.inputs, &kernels_[k].fusion.after}) {
        for (size_t i = needed->size(); i-- > 0;) {
          const size_t producer = kernel_of((*needed)[i]);
          if (producer == kNone || is_empty((*needed)[i])) continue;  // it has no elements
          BRAZE_CHECK(!entered[producer] || done[producer],
                      "two kernels need results of each other");
          if (!entered[producer]) open.push_back(producer);
        }
      }
    }
  }
  return order;
}

}  // namespace braze
