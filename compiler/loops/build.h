// build.h — the first tree of a kernel.
#pragma once

#include "compiler/fusion/inliner.h"
#include "compiler/loops/tree.h"

namespace braze {

/// The tree of the kernel that `fusion` describes: each loop as far out as values allow, and
/// nothing decided.
LoopTree build_loops(const LoopForms& forms, const Fusion& fusion, std::string_view name);

}  // namespace braze
