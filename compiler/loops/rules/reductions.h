// reductions.h — first trees whose kernels reduce: lines, and in each of them walks along axes.
#pragma once

#include "compiler/loops/rules/facts.h"
#include "compiler/loops/rules/rules.h"

namespace braze {

/// Loops one in the other, with nothing but tasks in the innermost.
struct Walk {
  std::vector<size_t> axes;            ///< the outermost first
  std::vector<const LoopTask*> tasks;  ///< until the tree changes
  size_t along() const { return axes.back(); }
};

/// Parallel loops around everything, and in them walks one behind the other, with tasks beside
/// them that see what the walks before have reduced.
struct ReductionNest {
  std::vector<size_t> lines;  ///< the outermost first
  std::vector<Walk> walks;
  std::vector<const LoopTask*> beside;
  bool begins_with_walk = false;
};
/// None if the tree is anything else, or has tasks that are no folds and stores.
std::optional<ReductionNest> reduction_nest(const LoopTree& tree);

/// The same where axes that all accesses run through are one; none without walks.
std::optional<ReductionNest> collapsed_reductions(Scheduled& out);
/// Why there is no such nest.
Refusal unserved_reduction(const LoopTree& tree);
/// Whether several walks compute the same at each index, which would pay to keep.
bool compute_alike(const LoopTree& tree, const ReductionNest& nest);

/// What the walks touch along one axis.
struct WalkFacts {
  size_t along = 0;  ///< the axis of the longest walk
  int64_t length = 1, lines = 1;
  int64_t elements = 1;                ///< of the longest walk, in a line
  std::vector<TreeAccess> touched;     ///< by walks along the axis
  std::vector<const LoopTask*> tasks;  ///< of the walks
  size_t walks = 0;                    ///< along the axis
  bool one_pass = false;               ///< there is one walk, which stores nothing
};
WalkFacts facts_of(const LoopTree& tree, const ReductionNest& nest);

/// Cuts every walk over an axis in turns of `turn`, which are dimensions of tiles.
void cut_walks(Scheduled& out, const std::string& axis, int64_t turn);
/// Puts the loops over lines on grid; those in `tiled` by tiles of so many.
void deal_lines(Scheduled& out, const std::vector<std::string>& lines,
                const std::vector<std::pair<std::string, int64_t>>& tiled);
/// Walks along an axis that come one behind the other become one, where that is legal: by the
/// online rule, what follows from a running maximum is summed in the same walk.
void merge_walks(Scheduled& out, const std::string& axis);
/// Whole turns of all walks along the axis need no masks.
void part_walks(Scheduled& out, const std::string& axis, int64_t turn);
/// Loops over the axis, in the order of the text.
int64_t count_loops(const LoopTree& tree, const std::string& axis);

}  // namespace braze
