// sums.h — steps that take something out of sums and loops: `draw` and `skip`.
#pragma once

#include "compiler/loops/steps/places.h"

namespace braze {

/// `draw %v`: if a factor of the dot (or the terms of the sum) v is multiplied or divided by
/// something that does not vary along the summed axes, this leaves the sum. A positive number by
/// which the terms of a greatest or least value are multiplied leaves it too. The readers of v
/// apply it.
struct DrawStep {
  static constexpr std::string_view kName = "draw";
  std::string value;
  void fields(auto& visit) { visit.value(value); }
};
std::optional<Refusal> legal(const LoopTree& tree, const DrawStep& step);
LoopTree take(LoopTree tree, const DrawStep& step);

/// `skip j (j <= i)`: the loop begins and ends where the condition may hold. Turns in which it is
/// always false must change nothing.
struct SkipStep {
  static constexpr std::string_view kName = "skip";
  LoopName loop;
  /// Over symbols of any range, in whose place those of the tree are put.
  IndexComparison condition;
  void fields(auto& visit) {
    visit(loop);
    visit(condition);
  }
};
std::optional<Refusal> legal(const LoopTree& tree, const SkipStep& step);
LoopTree take(LoopTree tree, const SkipStep& step);

}  // namespace braze
