// panels_cpu.h — what the rules for sums of products on a CPU share: names of loops, and panels.
//
// An earlier phase lays out the factors along the lanes once for all cores, in panels that an inner
// loop reads from the first byte to the last.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler/loops/rules/rules.h"

namespace braze {

/// The first loop over the axis for which `wanted` holds.
std::optional<LoopName> loop_over(const LoopTree& tree, const std::string& axis,
                                  const std::function<bool(const Loop&)>& wanted);

/// The stream over the axis in which something is summed, if there is one.
std::optional<LoopName> sum_loop(const Scheduled& out, const std::string& axis);

/// The factors that run along the axis `lanes` and not along `rows`.
struct PackedFactor {
  std::string lanes, rows;
  int64_t panel = 1;    ///< indices of `lanes` in a panel
  bool across = false;  ///< whether they are contiguous along the innermost summed axis
};

/// Packs the factors once for all cores, if the step is legal.
void pack_lanes(Scheduled& out, const std::vector<std::string>& summed, const PackedFactor& factor,
                const Target& target);

}  // namespace braze
