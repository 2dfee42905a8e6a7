// creation.h — new Arrays: zeros, ones, full, arange. random.h makes random ones.
#pragma once

#include <cstdint>
#include <vector>

#include "braze/array.h"
#include "braze/tensor.h"

namespace braze {

/// Zeros (false). Here and below, a negative extent throws InvalidArgument.
Array zeros(std::vector<int64_t> shape, DType dtype = f32, const Device& device = default_device());
/// Ones (true).
Array ones(std::vector<int64_t> shape, DType dtype = f32, const Device& device = default_device());
/// Every element is `value`, rounded once if `dtype` is floating. If another dtype cannot represent
/// it, it throws InvalidArgument.
Array full(std::vector<int64_t> shape, double value, DType dtype = f32,
           const Device& device = default_device());
/// [start, start + step ...] below `stop`, or above it if the step is negative. The rank is 1.
/// There are ceil((stop - start) / step) elements start + i * step, each rounded once. If step is
/// zero, it throws InvalidArgument.
Array arange(double start, double stop, double step = 1, DType dtype = f32,
             const Device& device = default_device());
/// [0, 1 ... count - 1], of rank 1. In floating dtypes each element is rounded once.
Array arange(int64_t count, DType dtype = i64, const Device& device = default_device());

}  // namespace braze
