// partition.h — divides a graph into Fusions.
//
// Search: every value that has to exist somewhere (results of reductions, outputs, values too
// costly to compute in each of their users) begins as a kernel of its own, with the cheap nodes
// between computed inside their users. Then kernels merge, the pair that saves most estimated time
// first, as long as a merge is legal and saves time. The search knows no op.
#pragma once

#include <string>
#include <vector>

#include "compiler/fusion/cost.h"
#include "compiler/fusion/fusion.h"
#include "ir/graph/graph.h"
#include "ir/target/target.h"

namespace braze {

/// The verdict on one edge of the graph.
struct EdgeReason {
  NodeId producer, consumer;
  const Code* code = nullptr;
  std::string detail;  ///< the costs compared, or what stands in the way
};

struct Partition {
  /// In an order in which they can run. Values without elements are nobody's output.
  std::vector<Fusion> fusions;
  std::vector<Cost> costs;  ///< of each
  std::vector<EdgeReason> edges;
  // What the search took.
  size_t tried = 0;   ///< pairs of kernels
  size_t priced = 0;  ///< kernels looked at; equal ones count once
};

struct PartitionOptions {
  bool fuse = true;     ///< false: every node that computes is a kernel of its own
  bool by_cost = true;  ///< false: whatever can be one kernel is, however slow
  bool relaxed = true;  ///< what is only summed may be rounded elsewhere
};

Partition partition(const LoopForms& forms, const Target& target,
                    const PartitionOptions& options = {});

/// Kernels with their nodes, costs, and the reason of every edge.
std::string to_text(const Graph& graph, const Partition& partition);

}  // namespace braze
