// factors.h — steps that make a part of what is summed before it is summed: `factor`, `pack`.
//
// A factor of a loop that sums is what its tasks compute along one axis and not along another: of
// a product of x[n, c] and w[c, f], `w` along f and not along n. It may be anything, also with
// several loads: whatever one index of n computes, all others would compute again.
#pragma once

#include "compiler/loops/steps/places.h"

namespace braze {

/// `factor c n f l`: at the top of loop l, a task makes what a turn of l needs of the factors of
/// loop c along n and not along f. Its tile has n first, and last if it is transposed.
struct FactorStep {
  static constexpr std::string_view kName = "factor";
  LoopName loop;
  std::string along, without;
  LoopName at;
  bool transposed = false;
  void fields(auto& visit) {
    visit(loop);
    visit.axis(along);
    visit.axis(without);
    visit(at);
    visit.flag(transposed, "transposed");
  }
};
std::optional<Refusal> legal(const LoopTree& tree, const FactorStep& step);
LoopTree take(const LoopTree& tree, const FactorStep& step);

/// `pack c f n 16`: a phase in front of all makes the factors of loop c along f and not along n,
/// once for all instances: in a workspace, in panels of 16 of f. Factors over the same axes share a
/// phase.
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

/// The factors of a loop along an axis and not along another; each once.
std::vector<LoopBody> factors_of(const LoopTree& tree, const Loop& loop, size_t along,
                                 size_t without);
/// The axes that a body uses.
std::set<size_t> axes_of(const LoopTree& tree, const LoopBody& body);
/// By step of a body: the axes that it and the steps that it needs use.
std::vector<std::set<size_t>> axes_of_steps(const LoopTree& tree, const LoopBody& body);

}  // namespace braze
