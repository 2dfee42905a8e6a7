// movement.h — lists of indices that say where each element of a movement op's result comes from.
//
// The interpreters use these functions for movement, reductions and contractions, so that index
// arithmetic is written once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/graph/graph.h"
#include "ir/graph/sizes.h"

namespace braze {

/// The source of one result element: element `index` (in row-major order) of operand `operand`.
struct Source {
  uint32_t operand = 0;
  int64_t index = 0;
};

/// The sources of all result elements, in row-major order. For broadcast, reshape, transpose,
/// slice, pad, windows, concat, reverse, barrier and constrain. Other ops are an internal error.
std::vector<Source> movement_sources(const Node& node,
                                     std::span<const std::vector<int64_t>> operands,
                                     const Sizes& sizes);

/// `base + sum of index * stride` for every index into `shape`, in row-major order.
std::vector<int64_t> strided_offsets(std::span<const int64_t> shape,
                                     std::span<const int64_t> strides, int64_t base = 0);

/// Row-major strides of `shape`.
std::vector<int64_t> dense_strides(std::span<const int64_t> shape);

}  // namespace braze
