// facts.h — facts about a tree that the rules use.
#pragma once

#include <set>
#include <string>
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
  bool irregular = false;                   ///< whether it has a condition or a loaded index
  std::set<std::string> loaded_along = {};  ///< names of the axes along which loaded indices vary

  /// How many elements neighbours along the axis are apart: 1 if they are contiguous, and 0 if the
  /// access does not depend on the axis. An access that is not linear has 2.
  int64_t stride(const LoopAxis& axis) const;
  /// Whether it depends on the axis, also through a loaded index.
  bool uses(const LoopAxis& axis) const;
};

/// All loads and stores of the tree, of tasks, or of a task. Several at one place count once.
std::vector<TreeAccess> accesses(const LoopTree& tree);
std::vector<TreeAccess> accesses(const LoopTree& tree, const std::vector<const LoopTask*>& tasks);
std::vector<TreeAccess> accesses(const LoopTree& tree, const LoopTask& task);

/// For each task in the order of the text, and each of its steps: whether no step before is equal.
/// What tasks have in common is computed once.
std::vector<std::vector<bool>> first_steps(const LoopTree& tree);

/// The number of machine operations at one index of all loops. Math rows count by their approximate
/// length, and what tasks have in common counts once. Operations that vary along `lane` are counted
/// apart from others; without `lane`, all count as varying. `times` says how often a task runs
/// (without it, once).
struct Operations {
  double varying = 0, uniform = 0;
};
Operations operations(const LoopTree& tree, std::optional<size_t> lane = {},
                      const std::function<double(const LoopTask&)>& times = {});

/// Operations of elementwise bodies that the target computes in a second.
double elementwise_rate(const Target& target);

/// If the tree is one nest of parallel loops around all tasks, as some first trees are: its axes,
/// the outermost first.
std::optional<std::vector<size_t>> nest_axes(const LoopTree& tree);

/// The axis of `axes` along which vectors run best; among equally good axes, the innermost. It is
/// the axis with most bytes in accesses that are contiguous or constant along it, weighted by the
/// share of full lanes. With `any_order` it suffices that the elements of neighbouring lanes lie
/// together in memory, as for the threads of a warp.
size_t best_lane_axis(const LoopTree& tree, const std::vector<TreeAccess>& accesses,
                      const std::vector<size_t>& axes, int64_t lanes, bool any_order = false);

/// The indices of the axis, above 0, at which conditions of steps begin to hold or cease to.
/// Nothing if some of them depend on more than the axis.
std::optional<std::set<int64_t>> boundaries_along(const LoopTree& tree, size_t axis);

/// How many neighbours along the axis one thread should access together: as many as 16 bytes hold
/// and the alignment of all contiguous accesses allows.
int64_t vector_along(const std::vector<TreeAccess>& accesses, const LoopAxis& axis);

/// The extent for which rules plan, at least 1: the extent itself, or the greatest value of a
/// symbolic one.
int64_t planned_extent(const LoopTree& tree, size_t axis);

/// The names of these axes.
std::vector<std::string> names_of(const LoopTree& tree, const std::vector<size_t>& axes);

int64_t floor_power_of_two(int64_t n);
int64_t ceil_power_of_two(int64_t n);
int64_t ceil_divide(int64_t a, int64_t b);

/// The number of loops over the axis.
int64_t count_loops(const LoopTree& tree, const std::string& axis);

}  // namespace braze
