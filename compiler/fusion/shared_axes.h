// shared_axes.h — whether the nodes of a Fusion can share loops.
//
// A Fusion can be one kernel if its reductions and outputs can be computed together: all of them
// run over the same parallel axes, and each reduces or stores over further axes of its own. In a
// softmax over rows, the maximum, the sum of exponentials and the quotients share the axis of the
// rows. An axis that a reshape has merged or cut is shared digit by digit: results that are stored
// as rows of all heads share the heads, and what is in them, with the product of each head.
#pragma once

#include <optional>

#include "compiler/fusion/fusion.h"
#include "compiler/fusion/inliner.h"

namespace braze {

/// Why nodes share no loops: a code of fusion/reasons.h and the nodes concerned.
struct NotShared {
  const Code* code = nullptr;
  NodeId first, second;
};

/// The reason why the nodes of `fusion` cannot share loops. None if they can. `by_digits`: whether
/// what reads a reduction may read it at digits of its own axes, or where its own digits lie.
std::optional<NotShared> refuse_shared_axes(const LoopForms& forms, const Fusion& fusion,
                                            bool by_digits);

}  // namespace braze
