// chunk.h — the step `chunk`: a streamed reduction, dealt to several instances.
#pragma once

#include "compiler/loops/steps/places.h"

namespace braze {

/// `chunk j 8 ticket`: 8 instances, or ranks of a cluster, take a part of the turns of j each. What
/// the loop carried is combined in the order of the parts; with `rank` all go on, else the last.
struct ChunkStep {
  static constexpr std::string_view kName = "chunk";
  LoopName loop;
  int64_t number = 1;
  Combine how = Combine::Ticket;
  void fields(auto& visit) {
    visit(loop);
    visit(number);
    visit(how);
  }
};
std::optional<Refusal> legal(const LoopTree& tree, const ChunkStep& step);
LoopTree take(const LoopTree& tree, const ChunkStep& step);

}  // namespace braze
