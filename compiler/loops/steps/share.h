// share.h — the step `share`: what several loops compute is computed once.
#pragma once

#include "compiler/loops/steps/places.h"

namespace braze {

/// `share l n`: the costliest expression that tasks in l and in later loops compute alike becomes a
/// value, if it has at least n operations and loads. l computes the value, and all of them read it.
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
/// Those of the steps that are legal. A tree may have many loops, and its bodies are compared once
/// for all of them.
std::vector<ShareStep> legal_ones(const LoopTree& tree, std::vector<ShareStep> steps);

}  // namespace braze
