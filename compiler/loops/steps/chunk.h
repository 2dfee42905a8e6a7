// chunk.h — the step `chunk`: several instances share a streamed reduction.
#pragma once

#include "compiler/loops/steps/places.h"

namespace braze {

/// `chunk j 8 phase`: 8 instances, or 8 ranks of a cluster, each take a part of the turns of j. The
/// states are combined in the order of the parts. With `rank` all instances continue with the
/// result, with `phase` a second phase does. That phase is dealt to the grid in the same turns, or
/// `apart`, in single ones.
struct ChunkStep {
  static constexpr std::string_view kName = "chunk";
  LoopName loop;
  int64_t number = 1;
  Combine how = Combine::Phase;
  bool apart = false;
  void fields(auto& visit) {
    visit(loop);
    visit(number);
    visit(how);
    visit.flag(apart, "apart");
  }
};
std::optional<Refusal> legal(const LoopTree& tree, const ChunkStep& step);
LoopTree take(LoopTree tree, const ChunkStep& step);

}  // namespace braze
