// finite.h — which values in memory are known to be finite.
#pragma once

#include "compiler/fusion/inliner.h"

namespace braze {

/// Whether `node` is a maximum or minimum that is finite if all products, and all sums of products,
/// from which it is computed are finite. Where conditions on indices leave terms out, each element
/// must have at least one term that is not left out. The inputs of the program may have any value.
bool is_finite(const LoopForms& forms, NodeId node);

}  // namespace braze
