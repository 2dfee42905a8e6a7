// cascade.h — what the rules for cascades of dots share: dots or folds that sum results of other
// dots, made by one walk over the summed axis.
#pragma once

#include <map>
#include <set>
#include <variant>
#include <vector>

#include "compiler/loops/rules/rules.h"

namespace braze {

/// A dot, and the number of the factor that has the rows, if there are any.
struct CascadeDot {
  const LoopTask* task;
  size_t rows_factor;
};

/// What the tasks of such a tree have in common.
struct Cascade {
  std::vector<size_t> nest;  ///< parallel axes around all, the outermost first
  size_t walk = 0;
  std::optional<size_t> rows;  ///< the parallel axis that each dot has in one of its factors
  /// Other summed axes of the first dots' results, which run one by one.
  std::set<size_t> around;
  std::vector<CascadeDot> dots;  ///< in the order of the tree
};

/// The cascade of a first tree, or a refusal that says in what way the tree has another form. If
/// `may_be_one_row`, the dots need no rows in common.
std::variant<Cascade, Refusal> find_cascade(const LoopTree& tree, bool may_be_one_row = false);

/// Draws factors that do not vary along what is summed out of the sums.
void draw_factors(Scheduled& out);

/// The extents of what the first dots sum and of the columns of the last ones, by axis.
std::optional<Refusal> collect_inner(const LoopTree& tree, const Cascade& cascade,
                                     std::map<size_t, int64_t>& out);

/// The bytes that the dots read for one index of the walk.
int64_t walked_bytes(const LoopTree& tree, const Cascade& cascade,
                     const std::map<size_t, int64_t>& inner);

/// Makes one axis of those that a first dot sums, where that is legal.
void join_sums(Scheduled& out, const Cascade& cascade);
/// The cascade after both, for the rules for few rows, with its tree, in which its tasks stand.
/// There may be one row; no further axis is summed.
std::variant<Cascade, Refusal> joined_cascade(Scheduled& out, LoopTree& tree);

/// Makes the loops whole that do not run over the axes `but`, and are no streams over
/// `but_streams`.
void make_whole(Scheduled& out, const std::set<size_t>& but,
                const std::set<size_t>& but_streams = {});

/// Splits the loops over the walk's axis into equal turns, and merges them.
std::optional<Refusal> join_walk(Scheduled& out, size_t walk, int64_t turn);

/// Lets an integer that is loaded bound the walk, if tasks compare the walk's index with one.
void limit_walk(Scheduled& out, size_t walk);

/// How many turns of the walk the phase that looks at integers from memory takes at once, and how
/// many indices of each.
struct WalkRanges {
  int64_t turns, indices;
  bool picks = true;  ///< whether phases may list the turns
};

/// Takes steps that may let phases list the turns of the walk, or do without. The list must be
/// cheap beside the walk.
std::optional<Refusal> take_with_picks(
    Scheduled& out, const Target& target,
    const std::function<std::optional<Refusal>(Scheduled&, bool picks)>& take);

/// Skips the turns in which a comparison of indices masks everything, and separates those in which
/// it masks nothing, which need not evaluate it. The same is done for comparisons of integers from
/// memory if `ranges` are given. If they allow it, a list of turns takes all conditions into
/// account instead. Without such a comparison, only the last turn checks where the axis ends.
void part_walk(Scheduled& out, size_t walk, int64_t turn, std::optional<WalkRanges> ranges = {});

}  // namespace braze
