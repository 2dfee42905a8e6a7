// factored_sums.h — the form that trees of products have before the rules for ordinary units change
// them: sums whose factors run along different parallel axes, so that a tile over both axes uses
// every factor several times.
#pragma once

#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "compiler/loops/rules/facts.h"
#include "compiler/loops/rules/summed_nest.h"

namespace braze {

/// The sums of a tree, and the stores that follow them.
struct FactoredSums : SummedNest {
  std::vector<const LoopTask*> sums;
  size_t rows = 0, lanes = 0;  ///< axes; along lanes, more factors and results are contiguous
};
std::variant<FactoredSums, Refusal> find_factored_sums(const LoopTree& tree);

/// Joins summed axes that every factor reads as one number, and summed axes with fewer than `few`
/// indices that lie side by side in all factors. A sum is carried through every loop around it, so
/// fewer nested loops carry it less often.
void join_digits(Scheduled& out, int64_t few);
/// Reorders the loops of a nest: the axes in `wanted` first, and then the others.
void sort_nest(Scheduled& out, const std::vector<size_t>& nest,
               const std::vector<std::string>& wanted);

/// The product of the planned extents of those `axes` for which `counts` holds. (For a symbol, the
/// planned extent is the value that the compiler plans for.)
int64_t product_of(const LoopTree& tree, const std::vector<size_t>& axes,
                   const std::function<bool(size_t)>& counts);
/// The number of machine operations that follow each sum.
double operations_after(const LoopTree& tree);

}  // namespace braze
