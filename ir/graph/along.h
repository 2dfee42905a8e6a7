// along.h — collectives along any axis of a tensor.
//
// A collective cuts and joins the first axis, where a block is one range of memory. Transposes
// before and behind bring another axis there: index maps, which fuse into their neighbours.
#pragma once

#include "ir/graph/graph.h"

namespace braze {

/// On all devices what each has, joined along `along`.
NodeId all_gather_along(Graph& graph, const MeshAxis& axis, NodeId x, int64_t along,
                        SourceLocation where = {});
/// Of the combination of what each has, the block of each along `along`, which the devices divide.
NodeId reduce_scatter_along(Graph& graph, const MeshAxis& axis, Monoid monoid, NodeId x,
                            int64_t along, SourceLocation where = {});
/// Cuts x along `split`, gives each device its block, and joins what comes along `join`.
NodeId all_to_all_along(Graph& graph, const MeshAxis& axis, NodeId x, int64_t split, int64_t join,
                        SourceLocation where = {});
/// The block along `along` that is the device's own, of what all devices share.
NodeId own_block(Graph& graph, const MeshAxis& axis, NodeId x, int64_t along,
                 SourceLocation where = {});

}  // namespace braze
