// means.h — sums that follow a running mean: 0003, section 3.
//
// Let y be the mean of terms t, and f(t - y) what another sum adds up: a polynomial in y of degree
// 2 at most. If the mean of n terms moves by d, the sum of f moves by
//   d * (sum of f') + d^2 / 2 * n * f''
// exactly. f' and f'' are found by differentiation, and the sum of f' is a state like others. For
// (t - y)^2 it is -2 times the sum of t - y, which is 0 but for roundings, and f'' is 2: the update
// of Chan, Golub and LeVeque. Nothing large cancels, because y is the mean of the very terms from
// which it is subtracted.
#pragma once

#include <set>
#include <string>
#include <variant>

#include "compiler/loops/tree.h"

namespace braze {

/// A sum and what it needs in order to follow a running mean, as bodies in which the mean is that
/// of the terms so far.
struct FollowedMean {
  LoopBody term;  ///< f
  /// f' = by_mean * slope, and slope' = slope_by_mean; without a slope, f' = by_mean.
  std::optional<LoopBody> slope = {};
  double by_mean = 0, slope_by_mean = 0;
};

/// `task` sums over the same axes as `sum`, whose total it reads. `count` is the value that counts
/// the terms so far. Otherwise the reason why the task cannot follow.
std::variant<FollowedMean, std::string> follow_mean(const LoopTree& tree, const LoopTask& sum,
                                                    const LoopTask& task, size_t count);

/// Makes the sum `value`, in a loop that carries it, follow the running mean of the sum `of`.
/// Values for what is counted and summed besides are added to the tree, and tasks in front of its
/// own.
void make_follow(LoopTree& tree, Loop& loop, size_t value, size_t of);

/// Whether a task counts the terms of its axes.
bool counts(const LoopTask& task);
/// How many there are.
Expr count_of(const LoopTree& tree, const std::vector<size_t>& over);

}  // namespace braze
