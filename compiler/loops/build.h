// build.h — the first tree of a kernel.
#pragma once

#include <map>

#include "compiler/fusion/inliner.h"
#include "compiler/loops/tree.h"

namespace braze {

/// The tree of the kernel that `fusion` describes: each loop as far out as values allow, and
/// nothing decided. `aliases`: inputs whose memory an output takes over, and that output.
/// `relaxed`: nodes that may be of another form, where there is a faster one for cascades of dots.
LoopTree build_loops(const LoopForms& forms, const Fusion& fusion, std::string_view name,
                     const std::map<NodeId, NodeId>& aliases = {},
                     const std::vector<bool>* relaxed = nullptr);

}  // namespace braze
