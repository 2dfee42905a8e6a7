// reductions.h — first trees whose kernels reduce: lines, and walks along axes in each line.
#pragma once

#include "compiler/loops/rules/facts.h"
#include "compiler/loops/rules/rules.h"

namespace braze {

/// Loops inside each other, with only tasks in the innermost.
struct Walk {
  std::vector<size_t> axes;            ///< the outermost first
  std::vector<const LoopTask*> tasks;  ///< valid until the tree changes
  size_t along() const { return axes.back(); }
};

/// Parallel loops around everything, with walks inside them that follow each other, and tasks
/// beside the walks that read what the walks before have reduced.
struct ReductionNest {
  std::vector<size_t> lines;  ///< the outermost first
  std::vector<Walk> walks;
  std::vector<const LoopTask*> beside;
  bool begins_with_walk = false;
};
/// None if the tree has another form, or has tasks other than folds and stores.
std::optional<ReductionNest> reduction_nest(const LoopTree& tree);

/// The same after axes that all accesses run through as one were joined; none without walks.
std::optional<ReductionNest> collapsed_reductions(Scheduled& out);
/// The reason why there is no such nest.
Refusal unserved_reduction(const LoopTree& tree);

/// What the walks access along one axis.
struct WalkFacts {
  size_t along = 0;  ///< the axis of the longest walk
  int64_t length = 1, lines = 1;
  int64_t elements = 1;                ///< of the longest walk, in one line
  std::vector<TreeAccess> touched;     ///< by walks along the axis
  std::vector<const LoopTask*> tasks;  ///< of the walks
  size_t walks = 0;                    ///< along the axis
  bool one_pass = false;               ///< whether there is one walk, and nothing before it
};
WalkFacts facts_of(const LoopTree& tree, const ReductionNest& nest);

/// Cuts every walk over an axis into turns of `turn`, which become dimensions of tiles.
void cut_walks(Scheduled& out, const std::string& axis, int64_t turn);
/// Puts the loops over lines on grid; loops over axes in `tiled` take that many lines as a tile.
void deal_lines(Scheduled& out, const std::vector<std::string>& lines,
                const std::vector<std::pair<std::string, int64_t>>& tiled);
/// Merges walks along an axis that follow each other, where that is legal. By the online rule,
/// values that follow a running maximum are summed in the same walk.
void merge_walks(Scheduled& out, const std::string& axis);
/// If all walks along the axis have whole turns only, they need no masks.
void part_walks(Scheduled& out, const std::string& axis, int64_t turn);
/// Loops over the axis, in the order of the text.
int64_t count_loops(const LoopTree& tree, const std::string& axis);

}  // namespace braze
