// factors.h — steps that compute a part of what is summed before the sum: `factor` and `pack`.
//
// A factor of a loop that sums is everything that its tasks compute along one axis and not along
// another. In a product of x[n, c] and w[c, f], `w` is the factor along f and not along n. A factor
// may be any expression, also with several loads. Without these steps, each index of n would
// compute it again.
#pragma once

#include "compiler/loops/steps/places.h"

namespace braze {

/// `factor c n f l`: at the top of loop l, a task makes what a turn of l needs of the factors of
/// loop c along n and not along f. The tile has n as its first dimension, or, if transposed, as its
/// last. With `panels 32`, which needs `transposed`, panels of 32 indices of n lie side by side if
/// the value is kept on chip.
struct FactorStep {
  static constexpr std::string_view kName = "factor";
  LoopName loop;
  std::string along, without;
  LoopName at;
  bool transposed = false;
  int64_t panel = 0;
  void fields(auto& visit) {
    visit(loop);
    visit.axis(along);
    visit.axis(without);
    visit(at);
    visit.flag(transposed, "transposed");
    visit.number_if_any(panel, "panels");
  }
};
std::optional<Refusal> legal(const LoopTree& tree, const FactorStep& step);
LoopTree take(const LoopTree& tree, const FactorStep& step);

/// `pack c f n 16`: a phase before all others makes the factors of loop c along f and not along n,
/// once for all instances, in a workspace with panels of 16 indices of f. Factors over the same
/// axes share a phase.
struct PackStep {
  static constexpr std::string_view kName = "pack";
  LoopName loop;
  std::string along, without;
  int64_t panel = 1;
  void fields(auto& visit) {
    visit(loop);
    visit.axis(along);
    visit.axis(without);
    visit(panel);
  }
};
std::optional<Refusal> legal(const LoopTree& tree, const PackStep& step);
LoopTree take(const LoopTree& tree, const PackStep& step);

/// The factors of a loop along one axis and not along another, each once.
std::vector<LoopBody> factors_of(const LoopTree& tree, const Loop& loop, size_t along,
                                 size_t without);
/// For each step of a body: the axes used by it and by the steps that it needs.
std::vector<std::set<size_t>> axes_of_steps(const LoopTree& tree, const LoopBody& body);

}  // namespace braze
