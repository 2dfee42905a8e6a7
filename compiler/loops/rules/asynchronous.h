// asynchronous.h — what rules for dots on asynchronous matrix units share: their figures, and
// whether bulk copies can fetch a factor.
#pragma once

#include <optional>
#include <set>

#include "compiler/loops/rules/facts.h"
#include "compiler/loops/rules/rules.h"

namespace braze {

namespace asynchronous {
inline constexpr int64_t kGroupRows = 64;    ///< rows that the unit multiplies at once
inline constexpr int64_t kGroups = 2;        ///< groups of warps that multiply
inline constexpr int64_t kPanelBytes = 128;  ///< bytes of a row of a copied panel
inline constexpr int64_t kSlab = 64;         ///< columns of a result that are stored together
}  // namespace asynchronous

/// The reason why bulk copies cannot fetch what `load` reads, as boxes along the axes in `tiled`.
/// The axis `summed` is copied in turns of `turn` indices (0: not known yet). No data may lie
/// behind its end, because the last turn would copy it.
std::optional<Refusal> refuse_copies(const LoopTree& tree, const LoopStep& load,
                                     const std::set<size_t>& tiled, size_t summed, int64_t turn);

}  // namespace braze
