// kernel_graph.h — the kernels of a partition under construction, and their edges.
//
// Every root, a value that must exist in memory, begins as a kernel of its own. The cheap nodes
// between the roots are computed in each kernel that needs them. Kernels are numbered in the order
// in which they are made, and a new kernel replaces two that merge.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "compiler/fusion/fusion.h"
#include "compiler/fusion/inliner.h"
#include "compiler/loops/cost.h"

namespace braze {

/// Whether a node is in memory before the program runs: an input, a dense constant, or the position
/// of the device in its mesh.
bool is_source(const LoopForms& forms, NodeId node);
/// Whether no loop can compute the node: it is a launch of its own, from memory to memory, as a
/// collective or a call of the host program's function is.
bool is_whole_launch(const LoopForms& forms, NodeId node);

/// A kernel of the partition.
struct Candidate {
  Fusion fusion;              ///< nodes and inputs in graph order
  std::vector<NodeId> roots;  ///< in graph order
  Cost cost;
  size_t kind = 0;                ///< equal kernels have the same
  const Code* refusal = nullptr;  ///< why it merges with no other kernel; then it has no cost
};

class KernelGraph {
 public:
  static constexpr size_t kNone = SIZE_MAX;

  /// `live[i]` says that node i is computed, and `root[i]` that it begins as a kernel.
  KernelGraph(const LoopForms& forms, const std::vector<bool>& live, const std::vector<bool>& root);

  /// The number of kernels made so far, including those that were replaced.
  size_t size() const { return kernels_.size(); }
  bool alive(size_t k) const { return alive_[k]; }
  Candidate& operator[](size_t k) { return kernels_[k]; }
  const Candidate& operator[](size_t k) const { return kernels_[k]; }

  /// The kernel that has a node as a root; kNone if the node is no root.
  size_t kernel_of(NodeId root) const { return kernel_of_[root.index]; }
  /// All kernels that compute a node.
  std::vector<size_t> homes(NodeId node) const { return kernels_with(homes_[node.index]); }
  /// The roots whose first kernels read a root or input.
  const std::vector<NodeId>& readers(NodeId value) const { return read_by_[value.index]; }
  /// The kernels that share an edge or an input with `k`. If many kernels share one value, only
  /// those nearest in the graph are neighbours.
  std::vector<size_t> neighbours(size_t k) const;
  /// The kernels through which one of `kernels` needs another, in the order of their numbers,
  /// unless they are more than `most`. `kernels` can become one kernel only together with these.
  std::optional<std::vector<size_t>> between(std::span<const size_t> kernels, size_t most) const;
  /// Whether a kernel reads what another one makes.
  bool reads(size_t reader, size_t maker) const;

  /// The kernel that these kernels would be together. Its cost is not measured yet.
  Candidate united(std::span<const size_t> kernels) const;
  /// Puts `merged` in place of these kernels, and returns its number.
  size_t replace(std::span<const size_t> kernels, Candidate merged);

  /// The kernels in an order in which they can run.
  std::vector<size_t> order() const;

 private:
  void make_kernel(NodeId root, const std::vector<bool>& is_root);
  bool is_empty(NodeId node) const { return graph_[node].type.shape.numel().range().max == 0; }
  void add_readers(size_t k, NodeId value, std::vector<NodeId>& roots) const;
  std::vector<size_t> kernels_with(const std::vector<NodeId>& roots) const;
  /// Whether a root must still reach memory if these kernels become one.
  bool leaves(NodeId root, std::span<const size_t> kernels) const;
  template <class Visit>
  void each_reader(size_t k, Visit&& visit) const;
  void raise_levels_after(size_t k);

  const LoopForms& forms_;
  const Graph& graph_;
  std::vector<bool> is_output_;  // also true of nodes with side effects
  std::vector<Candidate> kernels_;
  std::vector<bool> alive_;
  // Of a kernel: greater than the level of every kernel from which it reads.
  std::vector<size_t> level_;
  std::vector<size_t> kernel_of_;           // of a root
  std::vector<std::vector<NodeId>> homes_;  // of a node: the roots whose first kernels compute it
  // Of a root or input: the roots whose first kernels read it.
  std::vector<std::vector<NodeId>> read_by_;
  mutable std::vector<size_t> seen_;  // of a kernel or node: the last search that reached it
  // Of a kernel: how many steps it took that search to reach it.
  mutable std::vector<size_t> steps_;
  mutable size_t search_ = 0;
};

}  // namespace braze
