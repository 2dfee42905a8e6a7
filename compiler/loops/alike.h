// alike.h — finds kernels that are equal except for names, before they are scheduled.
//
// Layers that repeat make kernels whose first trees differ only in the names that the graph gives
// to tensors and values. Everything after the first tree depends on that tree and the target alone.
// So kernels with alike first trees are scheduled, tiled and lowered once, and each of them has the
// steps of the first one, with its own names in them.
#pragma once

#include <optional>
#include <string>

#include "compiler/loops/steps/text.h"

namespace braze {

/// The text of a first tree with numbers in place of the names of its tensors and values. First
/// trees with equal texts are alike. Nullopt if the names could be confused with those that steps
/// make from other names: such a tree is like no other.
std::optional<std::string> text_without_names(LoopTree first);

/// The same steps for a tree that is like the one for which they were chosen. Both are first trees.
LoopTreeSteps renamed(LoopTreeSteps steps, const LoopTree& from, const LoopTree& to);

}  // namespace braze
