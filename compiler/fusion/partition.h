// partition.h — divides a graph into Fusions.
//
// Search: every value that must exist in memory (results of reductions, outputs, values too costly
// to compute in each of their users) begins as a kernel of its own, and the cheap nodes between are
// computed inside their users. Then kernels merge, in the order of the time that a merge saves, as
// long as merges are legal and save time.
#pragma once

#include <string>
#include <vector>

#include "compiler/fusion/fusion.h"
#include "compiler/fusion/inliner.h"
#include "compiler/loops/cost.h"
#include "ir/graph/graph.h"
#include "ir/graph/reference.h"
#include "ir/target/target.h"

namespace braze {

/// The verdict on one edge of the graph.
struct EdgeReason {
  NodeId producer, consumer;
  const Code* code = nullptr;
  std::string detail;  ///< the costs compared, or what prevents it
};

struct Partition {
  /// Fusions in an order in which they can run. Values without elements are not the output of any
  /// Fusion.
  std::vector<Fusion> fusions;
  std::vector<Cost> costs;  ///< of each Fusion
  std::vector<EdgeReason> edges;
  // How much the search did.
  size_t tried = 0;   ///< pairs of kernels that were tried
  size_t priced = 0;  ///< kernels whose cost was computed; equal kernels count once
};

struct PartitionOptions {
  bool fuse = true;     ///< false: every node that computes something is a kernel of its own
  bool by_cost = true;  ///< false: whatever can be one kernel becomes one, even if it is slower
  /// Unless strict, values that are only summed may be rounded elsewhere.
  Precision precision = Precision::Standard;
};

Partition partition(const LoopForms& forms, const Target& target,
                    const PartitionOptions& options = {});

/// The kernels with their nodes and costs, and the reason of every edge.
std::string to_text(const Graph& graph, const Partition& partition);

}  // namespace braze
