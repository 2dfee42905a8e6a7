// unscatter.h — turns a scatter to a small result into a reduction, which a GPU computes for all
// elements at the same time.
#pragma once

#include "ir/graph/graph.h"
#include "ir/target/target.h"

namespace braze {

/// The graph without such scatters: element d of the result is x[d] combined with the updates whose
/// index is d, or is the last of these updates. This costs one comparison for each update and each
/// element of the result. A scatter that takes over the memory of x stays if its terms touch little
/// of it. Indices out of range are clamped, as gather clamps them. The rates of the target, a GPU,
/// tell which takes less time. The indices of a scatter that stays become clamped integers of 32
/// bits if there are many of them.
Graph unscatter(const Graph& graph, const Target& target);

}  // namespace braze
