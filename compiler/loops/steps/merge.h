// merge.h — the step `merge`, and the online rule (0003, section 3).
#pragma once

#include "compiler/loops/steps/places.h"

namespace braze {

/// `merge l k`: k, which stands directly after l and runs over the same turns, becomes a part of l.
/// Sums in k that read the final value of a maximum or minimum in l follow its running value, if
/// they separate.
struct MergeStep {
  static constexpr std::string_view kName = "merge";
  LoopName first, second;
  void fields(auto& visit) {
    visit(first);
    visit(second);
  }
};
std::optional<Refusal> legal(const LoopTree& tree, const MergeStep& step);
LoopTree take(const LoopTree& tree, const MergeStep& step);

}  // namespace braze
