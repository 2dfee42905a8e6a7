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
#include "ir/graph/reference.h"
#include "ir/target/target.h"

namespace braze {

/// The verdict on one edge of the graph.
struct EdgeReason {
  NodeId producer, consumer;
  const Code* code = nullptr;
  std::string detail;  ///< the costs compared, or what stands in the way
};

struct Partition {
  /// Fusions in an order in which they can run. Values without elements are not the output of any
  /// Fusion.
  std::vector<Fusion> fusions;
  std::vector<Cost> costs;  ///< of each Fusion
  std::vector<EdgeReason> edges;
  // How much the search did.
  size_t tried = 0;   ///< pairs of kernels
  size_t priced = 0;  ///< kernels whose cost was computed; equal ones count once
};

struct PartitionOptions {
  bool fuse = true;     ///< false: every node that computes is a kernel of its own
  bool by_cost = true;  ///< false: everything that can be one kernel is one, even if it is slower
  /// Unless strict, values that are only summed may be rounded elsewhere.
  Precision precision = Precision::Standard;
};

Partition partition(const LoopForms& forms, const Target& target,
                    const PartitionOptions& options = {});

/// Kernels with their nodes, costs, and the reason of every edge.
std::string to_text(const Graph& graph, const Partition& partition);

}  // namespace braze
