// sums.h — a step that takes something out of sums: `draw`.
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

}  // namespace braze
