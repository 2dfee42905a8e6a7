// build.h — the first tree of a kernel.
#pragma once

#include <map>

#include "compiler/fusion/inliner.h"
#include "compiler/loops/tree.h"

namespace braze {

/// The tree of the kernel that `fusion` describes: each loop as far out as values allow, and
/// nothing decided. `aliases`: inputs whose memory an output takes over, and that output.
LoopTree build_loops(const LoopForms& forms, const Fusion& fusion, std::string_view name,
                     const std::map<NodeId, NodeId>& aliases = {});

}  // namespace braze
