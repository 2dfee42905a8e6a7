// terms.h — steps for placed reductions, whose terms say where they are added: `enclose` and
// `seek`.
#pragma once

#include "compiler/loops/steps/places.h"

namespace braze {

/// `enclose d n`: puts a parallel loop over turns of n of d around the whole kernel. A turn takes
/// only the terms that are placed along d within it.
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
LoopTree take(LoopTree tree, const EncloseStep& step);

/// `seek l`: of the terms of a placed reduction over which l runs, only those are taken that have a
/// place in the present turn of the loops around. The places of as many terms as a turn of the loop
/// around l holds are compared at once.
struct SeekStep {
  static constexpr std::string_view kName = "seek";
  LoopName loop;
  void fields(auto& visit) { visit(loop); }
};
std::optional<Refusal> legal(const LoopTree& tree, const SeekStep& step);
LoopTree take(LoopTree tree, const SeekStep& step);

}  // namespace braze
