// merge.h — the step `merge`, and the online rule (0003, section 3).
#pragma once

#include "compiler/loops/steps/places.h"

namespace braze {

/// `merge l k`: k, which stands directly after l and has the same turns, becomes a part of l. A sum
/// in k that reads the final value of a maximum or minimum in l follows its running value instead,
/// if the online rule can separate it. One that reads the mean of a sum in l follows the running
/// mean, if it is a polynomial in it (means.h).
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
