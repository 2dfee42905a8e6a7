// skips.h — steps that leave out turns of a loop that change nothing: `skip` and `limit`.
#pragma once

#include "compiler/loops/steps/places.h"

namespace braze {

/// `skip j (j <= i)`: the loop begins and ends where the condition may hold. Turns in which it is
/// always false must change nothing.
struct SkipStep {
  static constexpr std::string_view kName = "skip";
  LoopName loop;
  /// Over symbols of any range, in whose place those of the tree are put.
  IndexComparison condition;
  void fields(auto& visit) {
    visit(loop);
    visit(condition);
  }
};
std::optional<Refusal> legal(const LoopTree& tree, const SkipStep& step);
LoopTree take(LoopTree tree, const SkipStep& step);

/// Says of a step of a body whether it is a certain condition.
using IsCondition = std::function<bool(const LoopBody&, const LoopStep&)>;
/// A reason why the loop would change something in turns in which the condition is false; nullopt
/// if it changes nothing.
std::optional<Refusal> changes_where_false(const LoopTree& tree, const Loop& loop,
                                           const IsCondition& is_condition);

/// `limit j`: tasks compare the index of j with an integer that is loaded, such as a position or
/// the length of a row. The loop loads it where it begins, and begins and ends where the
/// comparisons may hold. If tasks compare other integers that are loaded along j, an earlier phase
/// finds where they may hold (ranges.h). Turns in which they are false must change nothing.
struct LimitStep {
  static constexpr std::string_view kName = "limit";
  LoopName loop;
  void fields(auto& visit) { visit(loop); }
};
std::optional<Refusal> legal(const LoopTree& tree, const LimitStep& step);
LoopTree take(LoopTree tree, const LimitStep& step);
/// Why no integer bounds the loop that the loop itself could load; nullopt if one does.
std::optional<Refusal> refuse_loaded_limit(const LoopTree& tree, const LimitStep& step);

}  // namespace braze
