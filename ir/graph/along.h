// along.h — collectives along any axis of a tensor.
//
// A collective cuts and joins the first axis, where a block is one range of memory. For another
// axis, transposes before and after the collective bring it there. They are index maps, which fuse
// into the nodes around them.
#pragma once

#include "ir/graph/graph.h"

namespace braze {

/// Gives all devices the tensors of all devices, joined along `along`.
NodeId all_gather_along(Graph& graph, const MeshAxis& axis, NodeId x, int64_t along,
                        SourceLocation where = {});
/// Combines the tensors of all devices, and gives each device its block along `along`.
NodeId reduce_scatter_along(Graph& graph, const MeshAxis& axis, Monoid monoid, NodeId x,
                            int64_t along, SourceLocation where = {});
/// Cuts x along `split`, gives each device its block, and joins the blocks that a device receives
/// along `join`.
NodeId all_to_all_along(Graph& graph, const MeshAxis& axis, NodeId x, int64_t split, int64_t join,
                        SourceLocation where = {});
/// The device's own block, along `along`, of a tensor that is the same on all devices.
NodeId own_block(Graph& graph, const MeshAxis& axis, NodeId x, int64_t along,
                 SourceLocation where = {});

}  // namespace braze
