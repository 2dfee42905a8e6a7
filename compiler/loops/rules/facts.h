// facts.h — what rules ask of a tree.
#pragma once

#include <vector>

#include "compiler/loops/tree.h"

namespace braze {

/// One access to a tensor.
struct TreeAccess {
  size_t tensor = 0;
  Expr offset;       ///< in elements, over axes
  size_t bytes = 4;  ///< of one element
  bool store = false;
  bool irregular = false;  ///< conditional, or at an index that is loaded

  /// 1: contiguous along the axis; 0: constant; others are strides, 2 also if not linear.
  int64_t stride(const LoopAxis& axis) const;
};

/// All loads and stores, those of one place only once.
std::vector<TreeAccess> accesses(const LoopTree& tree);
std::vector<TreeAccess> accesses(const LoopTree& tree, const LoopTask& task);

/// Machine operations at one index of all loops, math rows at their rough length; what tasks have
/// in common once. Those that vary along an axis, and those that are the same; without one, all
/// vary. `times`: how often a task runs, 1 without it.
struct Operations {
  double varying = 0, uniform = 0;
};
Operations operations(const LoopTree& tree, std::optional<size_t> lane = {},
                      const std::function<double(const LoopTask&)>& times = {});

/// The axes of a first tree that is one nest of parallel loops around all tasks, the outermost
/// first; none if it is anything else.
std::optional<std::vector<size_t>> nest_axes(const LoopTree& tree);

/// The axis along which vectors run best, of those in `axes` the innermost of those as good: by the
/// bytes of accesses that are contiguous or constant along it, and the share of full lanes.
size_t best_lane_axis(const LoopTree& tree, const std::vector<TreeAccess>& accesses,
                      const std::vector<size_t>& axes, int64_t lanes);

/// Neighbours along the axis that one thread should access together: as many as 16 bytes hold, if
/// all contiguous accesses are then aligned.
int64_t vector_along(const std::vector<TreeAccess>& accesses, const LoopAxis& axis);

/// The extent to plan for: the extent or, if symbolic, its greatest value; at least 1.
int64_t planned_extent(const LoopTree& tree, size_t axis);

}  // namespace braze
