// asynchronous.h — what rules for dots on asynchronous matrix units ask of a tree: factors that
// copies fetch while others multiply.
#pragma once

#include <optional>
#include <set>

#include "compiler/loops/rules/facts.h"
#include "compiler/loops/rules/rules.h"

namespace braze {

namespace asynchronous {
inline constexpr int64_t kGroupRows = 64;    ///< of the unit
inline constexpr int64_t kGroups = 2;        ///< of warps that multiply
inline constexpr int64_t kPanelBytes = 128;  ///< of a row of what is copied
inline constexpr int64_t kSlab = 64;         ///< columns of a result that leave together
}  // namespace asynchronous

/// A dot with one of its factors alone.
LoopTask with_factor(const LoopTask& dot, size_t factor);
/// What axes index one of its factors.
std::set<size_t> axes_of_factor(const LoopTree& tree, const LoopTask& dot, size_t factor);

/// Why copies in bulk cannot fetch what is loaded by boxes along the axes in `tiled`. Behind the
/// end of the axis `summed` must be nothing that is copied with it: it is copied `turn` by `turn`,
/// or by what is not known yet (0).
std::optional<Refusal> refuse_copies(const LoopTree& tree, const LoopStep& load,
                                     const std::set<size_t>& tiled, size_t summed, int64_t turn);

}  // namespace braze
