// share.h — what several loops compute is computed once: `share`.
#pragma once

#include "compiler/loops/steps/places.h"

namespace braze {

/// `share l n`: the costliest expression that tasks in l and in loops behind it compute alike, of
/// at least n operations and loads, becomes a value, which l makes and all of them read.
struct ShareStep {
  static constexpr std::string_view kName = "share";
  LoopName loop;
  int64_t least = 1;
  void fields(auto& visit) {
    visit(loop);
    visit(least);
  }
};
std::optional<Refusal> legal(const LoopTree& tree, const ShareStep& step);
LoopTree take(const LoopTree& tree, const ShareStep& step);

}  // namespace braze
