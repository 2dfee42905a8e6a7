// order.h — decides in which order the launches run, and which kernels become one launch.
//
// Many kernels of a program are equal except for names and the memory that they use: projections of
// one value, updates of many tensors. Each of them may be too small for the machine. Those that do
// not depend on each other become members of one launch, which runs one kernel for several sets of
// memories (languages.md, section 4.1: `members`). No bit of a result depends on it. Then launches
// of kernels that are equal up to their sizes (compiler/loops/lists.h) are joined in the same way.
//
// All_reduces of one kind become members of one launch too, because each of them has a latency
// besides the time that its bytes take. The planner places their operands one behind another, so
// kernels write them there. It places their results in the same way. Thus together they are one
// all_reduce. Between GPUs the bits of a sum depend on its place in such a bucket. So the buckets
// are decided here, from the graph and the Target, and are a part of the Program.
#pragma once

#include <string>
#include <vector>

#include "compiler/planning/plan.h"

namespace braze {

/// The fusions of each launch, in an order in which the launches can run. All fusions of a launch
/// have equal keys: either their kernels are equal except for names, or they are collectives that
/// differ only in size (collective_key). Or they have equal `list_keys`, which says that their
/// kernels may differ in sizes too. A fusion is alone if both are empty. `fusions` must be in an
/// order in which they can run.
std::vector<std::vector<size_t>> launch_order(const LoopForms& forms,
                                              const std::vector<CompiledFusion>& fusions,
                                              const std::vector<std::string>& keys,
                                              const std::vector<std::string>& list_keys,
                                              const Updates& updates, const Target& target);

/// The least time that a kernel may take. Without products that is the time of its memory: its
/// estimate may be much longer, as that of a scatter that looks for its terms.
double least_seconds(const LoopForms& forms, const CompiledFusion& fusion, const Target& target);

/// Collectives with the same key can become one launch. The key is empty for other nodes.
std::string collective_key(const Graph& graph, NodeId node);

/// Makes one kernel with this number of members, under a new name.
Kernel joined(Kernel kernel, size_t members);

}  // namespace braze
