// picks.h — the step that leaves out any turns of a walk that change nothing: `pick`.
#pragma once

#include "compiler/loops/steps/places.h"

namespace braze {

/// `pick j`: tasks choose by conditions over indices and what is loaded, such as masks. New phases
/// before find out, for each turn of the loops around, in which turns of j each condition may hold,
/// and in which ones it holds everywhere. They leave a list of the former: the turns in which
/// conditions must be evaluated come first. The loop takes the turns of the list. Turns in which a
/// condition is false everywhere must change nothing.
struct PickStep {
  static constexpr std::string_view kName = "pick";
  LoopName loop;
  void fields(auto& visit) { visit(loop); }
};
std::optional<Refusal> legal(const LoopTree& tree, const PickStep& step);
LoopTree take(LoopTree tree, const PickStep& step);

/// Whether the conditions for a legal step say more than what `skip` and `limit` find without a
/// phase: they compare numbers that are loaded for each row or along the walk, are flags or tables
/// in memory, or contain alternatives.
bool needs_phases(const LoopTree& tree, const PickStep& step);

}  // namespace braze
