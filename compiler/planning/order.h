// order.h — decides in which order the launches run, and which equal kernels become one launch.
//
// Many kernels of a program are equal except for names and the memory that they use: projections of
// one value, updates of many tensors. Each of them may be too small for the machine. Those that do
// not depend on each other become members of one launch, which runs one kernel for several sets of
// memories (languages.md, section 4.1: `members`). No bit of a result depends on it.
#pragma once

#include <string>
#include <vector>

#include "compiler/planning/plan.h"

namespace braze {

/// The fusions of each launch, in an order in which the launches can run. All fusions of a launch
/// have equal keys, and all of their kernels are equal except for names. A fusion whose key is
/// empty is alone. `fusions` must be in an order in which they can run.
std::vector<std::vector<size_t>> launch_order(const LoopForms& forms,
                                              const std::vector<CompiledFusion>& fusions,
                                              const std::vector<std::string>& keys,
                                              const Updates& updates, const Target& target);

/// Makes one kernel with this number of members, under a new name.
Kernel joined(Kernel kernel, size_t members);

}  // namespace braze
