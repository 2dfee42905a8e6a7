// sums.h — steps that leave out a part of sums and loops: `draw`, `skip`.
#pragma once

#include "compiler/loops/steps/places.h"

namespace braze {

/// `draw %v`: a multiplier or divisor of a factor of the dot that does not vary along the summed
/// axis is drawn out of the sum, and applied by the readers of v.
struct DrawStep {
  static constexpr std::string_view kName = "draw";
  std::string value;
  void fields(auto& visit) { visit.value(value); }
};
std::optional<Refusal> legal(const LoopTree& tree, const DrawStep& step);
LoopTree take(LoopTree tree, const DrawStep& step);

/// `skip j (j <= i)`: the loop begins and ends where the condition may hold. Turns in which it is
/// false everywhere must change nothing.
struct SkipStep {
  static constexpr std::string_view kName = "skip";
  LoopName loop;
  IndexComparison condition;  ///< over symbols of any range; the symbols of the tree replace them
  void fields(auto& visit) {
    visit(loop);
    visit(condition);
  }
};
std::optional<Refusal> legal(const LoopTree& tree, const SkipStep& step);
LoopTree take(LoopTree tree, const SkipStep& step);

}  // namespace braze
