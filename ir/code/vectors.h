// vectors.h — conditions on the lanes of vectors.
//
// In the code of threads, the symbol `lane` counts the neighbours that one access moves together. A
// comparison that holds for all of them or for none need not be asked lane by lane.
#pragma once

#include "ir/code/code.h"

namespace braze {

/// Whether the comparison surely holds for all of `lanes` neighbours, or for none of them.
inline bool is_cut_whole(const IndexComparison& c, int64_t lanes) {
  if (!c.left.uses("lane") && !c.right.uses("lane")) return true;
  using Kind = IndexComparison::Kind;
  if (c.kind == Kind::Eq || c.kind == Kind::Ne) return false;
  // All others say that a difference is at least 1: a < b is b - a > 0, and a <= b is b - a + 1 >
  // 0.
  const bool swap = c.kind == Kind::Gt || c.kind == Kind::Ge;
  const bool equal = c.kind == Kind::Le || c.kind == Kind::Ge;
  const Expr diff = (swap ? c.left : c.right) - (swap ? c.right : c.left) + Expr(equal ? 1 : 0);
  const auto step = diff.coefficient_of("lane");
  if (!step) return false;
  const Expr first = diff.substitute("lane", Expr(0));
  // It holds for the lanes below `first`, or for those from 1 - `first` on.
  return (step->is_constant(-1) && first.is_multiple_of(lanes)) ||
         (step->is_constant(1) && (first - Expr(1)).is_multiple_of(lanes));
}

}  // namespace braze
