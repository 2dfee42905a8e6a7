// families.h — the schedule families: one rule each, one file each.
#pragma once

#include <optional>
#include <vector>

#include "compiler/tiling/emitter.h"

namespace braze {

/// One memory access of a space, with what rules ask of it.
struct AccessInfo {
  NodeId node;
  Expr offset;       ///< in elements, over the space's symbols
  size_t bytes = 4;  ///< of one element
  bool store = false;
  bool irregular = false;  ///< conditional or indirect

  bool uses(const SpaceAxis& axis) const { return offset.uses(axis.symbol.symbol_name()); }
  /// 1: contiguous along the axis; 0: constant; others are strides, 2 also if not linear.
  int64_t stride(const SpaceAxis& axis) const;
};

/// All loads and stores of the space, each once, with the pass they belong to.
std::vector<AccessInfo> accesses(const TilingRequest& request, const Pass& pass);
/// Machine operations an element of a pass.
double flops_per_element(const TilingRequest& request, const Pass& pass);

/// How well vectors run along `axis`: bytes of accesses that are contiguous or constant along it,
/// as a share of all, times the share of full lanes.
double lane_quality(const std::vector<AccessInfo>& accesses, const SpaceAxis& axis, int64_t lanes);

/// The extent to plan for: the extent or, if symbolic, its greatest value.
int64_t planned_extent(const Expr& extent);

std::optional<Schedule> schedule_pointwise(const TilingRequest& request, const Space& space);
std::optional<Schedule> schedule_contraction(const TilingRequest& request, const Space& space);
std::optional<Schedule> schedule_reduction(const TilingRequest& request, const Space& space);

}  // namespace braze
