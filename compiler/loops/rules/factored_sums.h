// factored_sums.h — the form that products of any kind have before rules for ordinary units change
// them: a sum whose factors run along different parallel axes, so that a tile of both axes uses
// every factor again.
#pragma once

#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "compiler/loops/rules/facts.h"
#include "compiler/loops/rules/rules.h"

namespace braze {

/// What is summed, and what follows.
struct FactoredSums {
  std::vector<size_t> nest;    ///< parallel axes around all, the outermost first
  std::vector<size_t> summed;  ///< the outermost first
  std::vector<const LoopTask*> sums, stores;
  const Loop* loop = nullptr;  ///< the outermost over what is summed
  size_t rows = 0, lanes = 0;  ///< axes; lanes are along more neighbours in memory
};
std::variant<FactoredSums, Refusal> find_factored_sums(const LoopTree& tree);

/// Summed axes that are one number where a factor is read become one, and so do those shorter than
/// `few` that lie side by side in all factors: loops in each other hand all sums from one to the
/// other.
void join_digits(Scheduled& out, int64_t few);
/// Puts the loops of a nest in an order: those that are named first, and then the others.
void sort_nest(Scheduled& out, const std::vector<size_t>& nest,
               const std::vector<std::string>& wanted);

/// The product of the planned extents of those of `axes` that count.
int64_t product_of(const LoopTree& tree, const std::vector<size_t>& axes,
                   const std::function<bool(size_t)>& counts);
/// Machine operations on each sum, after it.
double operations_after(const LoopTree& tree);

}  // namespace braze
