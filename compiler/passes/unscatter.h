// unscatter.h — turns a scatter to a small result into a reduction, which a GPU computes for all
// elements at the same time.
#pragma once

#include <vector>

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

/// Whether the target, a GPU, reads and writes all of what the scatter updates in less time than
/// its terms take in their places.
bool moving_pays(const Node& scatter, const Shape& indices, const Target& target);

/// Seconds that the terms of a scatter wait for each other on a GPU, if one place has many of them.
double waiting_seconds(const Node& scatter, const Shape& indices);

/// For every node of `graph`: whether it is a scatter whose result is an output that updates its x.
std::vector<bool> scatters_in_place(const Graph& graph);

}  // namespace braze
