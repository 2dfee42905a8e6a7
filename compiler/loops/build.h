// build.h — the first tree of a kernel.
#pragma once

#include <map>

#include "compiler/fusion/inliner.h"
#include "compiler/loops/tree.h"

namespace braze {

/// The tree of the kernel that `fusion` describes, with each loop as far out as the values allow,
/// and without any choice of a schedule. `aliases` are inputs whose memory an output takes over,
/// with that output. `relaxed` are nodes that may take another form if that is faster for cascades
/// of dots.
LoopTree build_loops(const LoopForms& forms, const Fusion& fusion, std::string_view name,
                     const std::map<NodeId, NodeId>& aliases = {},
                     const std::vector<bool>* relaxed = nullptr);

}  // namespace braze
