// join_groups.h — products in groups that are too narrow for matrix units.
//
// A convolution in groups multiplies few channels of each group. If the groups lie side by side in
// memory, several of them can be one wider group. Where the channels are summed, the other factor
// becomes a matrix of blocks, which is 0 beside its diagonal. Where they are not, as in the
// gradient of the weights, the results between different groups are left out. Either way a matrix
// unit multiplies more than it needs to, but it reads whole lines of memory.
//
// Zeros of the blocks are multiplied: an infinity or a NaN in a group makes NaN in the results of
// groups with which it is joined.
#pragma once

#include "ir/graph/graph.h"
#include "ir/target/target.h"

namespace braze {

/// The graph in which groups of large products of 16-bit values, or of tf32, are joined where that
/// is estimated to take less time, if the target is a GPU with matrix units.
Graph join_groups(const Graph& graph, const Target& target);

}  // namespace braze
