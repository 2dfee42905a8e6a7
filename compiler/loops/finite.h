// finite.h — which values that are in memory are known to be finite.
#pragma once

#include "compiler/fusion/inliner.h"

namespace braze {

/// Whether a node is a greatest or least value that is finite if all products and sums of products
/// that it was computed of are: where conditions on indices leave terms out, each element has at
/// least one that is not left out. Inputs of the program may be anything.
bool is_finite(const LoopForms& forms, NodeId node);

}  // namespace braze
