// creation.h — Arrays made from nothing: zeros, ones, full, arange. Random ones: random.h.
#pragma once

#include <cstdint>
#include <vector>

#include "braze/array.h"
#include "braze/tensor.h"

namespace braze {

/// Zeros (false). InvalidArgument, here and below, for a negative extent.
Array zeros(std::vector<int64_t> shape, DType dtype = f32, const Device& device = default_device());
/// Ones (true).
Array ones(std::vector<int64_t> shape, DType dtype = f32, const Device& device = default_device());
/// Every element is `value`, rounded once to a floating `dtype`; InvalidArgument if another one
/// does not have it.
Array full(std::vector<int64_t> shape, double value, DType dtype = f32,
           const Device& device = default_device());
/// [start, start + step ...] below `stop` (above, for a negative step): rank 1, of
/// ceil((stop - start) / step) elements start + i * step, each rounded once. InvalidArgument if
/// step is zero.
Array arange(double start, double stop, double step = 1, DType dtype = f32,
             const Device& device = default_device());
/// [0, 1 ... count - 1]: rank 1. In floating dtypes rounded once each.
Array arange(int64_t count, DType dtype = i64, const Device& device = default_device());

}  // namespace braze
