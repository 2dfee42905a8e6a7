// terms.h — steps for reductions whose terms say where they are added: `enclose`, `seek`.
#pragma once

#include "compiler/loops/steps/places.h"

namespace braze {

/// `enclose d n`: a parallel loop over turns of n of d stands around all of the kernel. What is
/// placed along d is that of the turn.
struct EncloseStep {
  static constexpr std::string_view kName = "enclose";
  std::string axis;
  int64_t turn = 1;
  void fields(auto& visit) {
    visit.axis(axis);
    visit(turn);
  }
};
std::optional<Refusal> legal(const LoopTree& tree, const EncloseStep& step);
LoopTree take(const LoopTree& tree, const EncloseStep& step);

/// `seek l`: of l, the terms of a placed reduction, only the turns are taken that have a place
/// here. The places of as many terms as a turn of the loop around holds are compared at once.
struct SeekStep {
  static constexpr std::string_view kName = "seek";
  LoopName loop;
  void fields(auto& visit) { visit(loop); }
};
std::optional<Refusal> legal(const LoopTree& tree, const SeekStep& step);
LoopTree take(const LoopTree& tree, const SeekStep& step);

}  // namespace braze
