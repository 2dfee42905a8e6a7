// build.h — the first tree of a kernel.
#pragma once

#include <map>

#include "compiler/fusion/inliner.h"
#include "compiler/loops/tree.h"

namespace braze {

/// The tree of the kernel that `fusion` describes, with each loop as far out as the values allow,
/// and without any choice of a schedule. `aliases` are inputs whose memory an output takes over,
/// with that output. `relaxed` are nodes whose values may be rounded elsewhere, or computed
/// otherwise. `approximates`: cascades of dots are faster if they are, and other sums may take terms
/// of 4 ulp.
LoopTree build_loops(const LoopForms& forms, const Fusion& fusion, std::string_view name,
                     const std::map<NodeId, NodeId>& aliases = {},
                     const std::vector<bool>* relaxed = nullptr, bool approximates = false);

}  // namespace braze
