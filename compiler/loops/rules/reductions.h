// reductions.h — facts about first trees that reduce: they have lines, and walks along axes in each
// line. The rules for all machines share them.
#pragma once

#include "compiler/loops/rules/facts.h"
#include "compiler/loops/rules/rules.h"

namespace braze {

/// Loops inside each other that contain only tasks in the innermost loop.
struct Walk {
  std::vector<size_t> axes;            ///< the outermost first
  std::vector<const LoopTask*> tasks;  ///< valid until the tree changes
  size_t along() const { return axes.back(); }
};

/// Parallel loops (over lines) around everything, and walks inside them that follow each other.
/// Tasks beside the walks read what earlier walks have reduced.
struct ReductionNest {
  std::vector<size_t> lines;  ///< the outermost first
  std::vector<Walk> walks;
  std::vector<const LoopTask*> beside;
  bool begins_with_walk = false;
};
/// The nest of a tree. None if the tree has another form, or tasks other than folds, dots,
/// arg-reductions and stores.
std::optional<ReductionNest> reduction_nest(const LoopTree& tree);

/// The same after axes that all accesses run through as one were joined. None if there are no
/// walks.
std::optional<ReductionNest> collapsed_reductions(Scheduled& out);
/// The reason why the tree has no such nest.
Refusal unserved_reduction(const LoopTree& tree);

/// What the walks along one axis access.
struct WalkFacts {
  size_t along = 0;  ///< the axis of the longest walk
  int64_t length = 1, lines = 1;
  int64_t elements = 1;                ///< elements of the longest walk in one line
  std::vector<TreeAccess> touched;     ///< accesses of these walks
  std::vector<const LoopTask*> tasks;  ///< tasks of these walks
  size_t walks = 0;                    ///< number of walks along the axis
  bool one_pass = false;               ///< whether there is one walk, and nothing before it
};
WalkFacts facts_of(const LoopTree& tree, const ReductionNest& nest);

/// Cuts every walk along an axis into turns of `turn`, which become dimensions of tiles.
void cut_walks(Scheduled& out, const std::string& axis, int64_t turn);
/// Deals the loops over lines to the grid. Loops over axes in `tiled` take the given number of
/// lines as a tile.
void deal_lines(Scheduled& out, const std::vector<std::string>& lines,
                const std::vector<std::pair<std::string, int64_t>>& tiled);
/// Merges walks along an axis that follow each other, where that is legal. By the online rule, a
/// sum of values that depend on a running maximum joins the walk of the maximum. A sum that follows
/// a mean joins its walk only if `means`, because that takes more operations than to read again
/// what is near, and a sum that must be rescaled only if `rescales`. Returns the number of walks
/// that became parts of others.
size_t merge_walks(Scheduled& out, std::string axis, bool means, bool rescales = true);
/// Whether all walks become one along an axis, in which sums follow a mean.
bool follows_means(const Scheduled& scheduled, const ReductionNest& nest, const std::string& axis);
/// Whether `instances` that share a core's memory, with `lines` lines each, read more in a walk
/// than this memory holds.
bool reads_far(const LoopTree& tree, const WalkFacts& facts, int64_t lines, int64_t instances,
               const Target& target);
/// Cuts a walk into chunks that a second phase folds, if it can.
void chunk_by_phase(Scheduled& out, const std::string& axis, int64_t chunks);
/// If turns of the walks may reach beyond the end of the axis, separates whole turns, which need no
/// masks.
void part_walks(Scheduled& out, std::string axis, int64_t turn);

}  // namespace braze
