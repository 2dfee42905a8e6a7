// summed_nest.h — the form that trees of products have before rules change them.
#pragma once

#include <variant>
#include <vector>

#include "compiler/loops/rules/rules.h"
#include "compiler/loops/tree.h"

namespace braze {

/// Parallel loops around streams over the summed axes, and the stores that follow.
struct SummedNest {
  std::vector<size_t> nest;            ///< the axes of the parallel loops, the outermost first
  std::vector<size_t> summed;          ///< the axes of the streams, the outermost first
  const Loop* loop = nullptr;          ///< the outermost stream
  const LoopRegion* inside = nullptr;  ///< the body of the innermost one
  std::vector<const LoopTask*> stores;
};

/// The only loop of a region, if it runs over one axis; else null.
const Loop* only_loop(const LoopRegion& region);

/// The nest of a tree, or a refusal that says in what way the tree has another form.
std::variant<SummedNest, Refusal> find_summed_nest(const LoopTree& tree);

}  // namespace braze
