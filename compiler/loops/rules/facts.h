// facts.h — facts about a tree that rules use.
#pragma once

#include <vector>

#include "compiler/loops/tree.h"
#include "ir/target/target.h"

namespace braze {

/// One access to a tensor.
struct TreeAccess {
  size_t tensor = 0;
  Expr offset;       ///< in elements, over axes
  size_t bytes = 4;  ///< of one element
  bool store = false;
  bool irregular = false;  ///< under a condition, or at an index that is loaded

  /// 1: contiguous along the axis; 0: constant along it; other numbers are strides, and 2 also
  /// stands for an access that is not linear.
  int64_t stride(const LoopAxis& axis) const;
};

/// All loads and stores; several at one place count once.
std::vector<TreeAccess> accesses(const LoopTree& tree);
std::vector<TreeAccess> accesses(const LoopTree& tree, const LoopTask& task);

/// By task, in the order of the text, and by step: whether no step before it is the same. What
/// tasks have in common is computed once.
std::vector<std::vector<bool>> first_steps(const LoopTree& tree);

/// Machine operations at one index of all loops, where math rows count by their approximate length,
/// and what tasks have in common counts once. The result separates operations that vary along an
/// axis from those that do not; without an axis, all vary. `times` says how many times a task runs;
/// without it, once.
struct Operations {
  double varying = 0, uniform = 0;
};
Operations operations(const LoopTree& tree, std::optional<size_t> lane = {},
                      const std::function<double(const LoopTask&)>& times = {});

/// Operations of elementwise bodies that the target computes in a second.
double elementwise_rate(const Target& target);

/// The axes of a first tree that is one nest of parallel loops around all tasks, the outermost
/// first; none if the tree has another form.
std::optional<std::vector<size_t>> nest_axes(const LoopTree& tree);

/// The axis of `axes` along which vectors run best; of equally good axes, the innermost. It is
/// chosen by the bytes of accesses that are contiguous or constant along it, and by the share of
/// full lanes. With `any_order`, as for the threads of a warp, it is enough that the lanes'
/// elements lie together in memory.
size_t best_lane_axis(const LoopTree& tree, const std::vector<TreeAccess>& accesses,
                      const std::vector<size_t>& axes, int64_t lanes, bool any_order = false);

/// The number of neighbours along the axis that one thread should access together: as many as 16
/// bytes hold, if all contiguous accesses are aligned then.
int64_t vector_along(const std::vector<TreeAccess>& accesses, const LoopAxis& axis);

/// The extent to plan for: the extent itself or, if it is symbolic, its greatest value; at least 1.
int64_t planned_extent(const LoopTree& tree, size_t axis);

}  // namespace braze
