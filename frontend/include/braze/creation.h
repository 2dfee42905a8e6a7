// creation.h — Arrays made from nothing: zeros, ones, full, arange. Random ones: random.h.
#pragma once

#include <cstdint>
#include <vector>

#include "braze/array.h"
#include "braze/tensor.h"

namespace braze {

Array zeros(std::vector<int64_t> shape, DType dtype = f32, const Device& device = default_device());
Array ones(std::vector<int64_t> shape, DType dtype = f32, const Device& device = default_device());
/// Every element is `value`, rounded once to a floating `dtype`; InvalidArgument if another one
/// does not have it.
Array full(std::vector<int64_t> shape, double value, DType dtype = f32,
           const Device& device = default_device());
/// [start, start + step ...] below `stop` (above, for a negative step). InvalidArgument if step is
/// zero. The elements are start + i * step, rounded once.
Array arange(double start, double stop, double step = 1, DType dtype = f32,
             const Device& device = default_device());
/// [0, 1 ... count - 1].
Array arange(int64_t count, DType dtype = i64, const Device& device = default_device());

}  // namespace braze
