// build.h — the first tree of a kernel.
#pragma once

#include <map>

#include "compiler/fusion/inliner.h"
#include "compiler/loops/tree.h"

namespace braze {

/// The tree of the kernel that `fusion` describes. Each loop is as far out as the values allow, and
/// no choice of a schedule has been made. `aliases` maps an input to the output that takes over its
/// memory. `relaxed` says, for each node, whether its value may be rounded elsewhere or computed in
/// another way: exp of such a node is an approximate 2^x in cascades of dots, and in other kernels
/// if it is a term of a long sum. `coarse` says, for each node, whether its math rows may be
/// computed by coarse bodies, and `powers` whether its exp may be an approximate 2^x wherever it
/// is.
LoopTree build_loops(const LoopForms& forms, const Fusion& fusion, std::string_view name,
                     const std::map<NodeId, NodeId>& aliases = {},
                     const std::vector<bool>* relaxed = nullptr,
                     const std::vector<bool>* coarse = nullptr,
                     const std::vector<bool>* powers = nullptr);

}  // namespace braze
