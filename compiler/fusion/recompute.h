// recompute.h — what it costs to compute a value again instead of storing it.
#pragma once

#include <vector>

#include "compiler/fusion/inliner.h"
#include "ir/target/target.h"

namespace braze {

/// Whether computing `dot` again may take less time than writing its elements to memory and reading
/// them back. This can only hold for a dot that is at least four times as large as each factor, and
/// twice on a CPU. The rates of asynchronous matrix units tell. On a CPU the prices of the kernels
/// that read the dot must tell, because they may leave out much of it (what a mask hides).
bool may_be_cheaper_again(const LoopForms& forms, NodeId dot, const Target& target);

/// The machine operations of an evaluation.
struct Recomputation {
  double of_loaded = 0;   ///< of what is read from memory or was reduced before
  double of_indices = 0;  ///< of indices and constants alone
};
/// The operations to compute `node` once at one index, together with the nodes before it for which
/// `inside` holds, up to reductions.
Recomputation recomputation(const LoopForms& forms, const std::vector<bool>& inside, NodeId node);

/// The number of machine operations of a row; math rows count by their approximate length.
double operation_cost(ElementwiseOp op);

}  // namespace braze
