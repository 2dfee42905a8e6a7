// sums.h — steps on what sums and their loops may leave out: `draw`, `skip`.
#pragma once

#include "compiler/loops/steps/places.h"

namespace braze {

/// `draw %v`: what a factor of the dot is multiplied by or divided by, and does not vary along what
/// is summed, is drawn out of the sum: those who read v take it.
struct DrawStep {
  static constexpr std::string_view kName = "draw";
  std::string value;
  void fields(auto& visit) { visit.value(value); }
};
std::optional<Refusal> legal(const LoopTree& tree, const DrawStep& step);
LoopTree take(LoopTree tree, const DrawStep& step);

/// `skip j (j <= i)`: the loop begins and ends where the condition may hold; in turns in which it
/// is false everywhere nothing would change.
struct SkipStep {
  static constexpr std::string_view kName = "skip";
  LoopName loop;
  IndexComparison condition;  ///< over symbols of any range; the tree's are put in their place
  void fields(auto& visit) {
    visit(loop);
    visit(condition);
  }
};
std::optional<Refusal> legal(const LoopTree& tree, const SkipStep& step);
LoopTree take(LoopTree tree, const SkipStep& step);

}  // namespace braze
