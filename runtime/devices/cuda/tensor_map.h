// tensor_map.h — translates a TensorMapRecipe to the terms of the CUDA driver.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "ir/program/program.h"
#include "runtime/devices/cuda/driver_api.h"

namespace braze {

/// The arguments of cuTensorMapEncodeTiled without the address. The innermost axis comes first.
struct TensorMapArguments {
  static constexpr uint32_t kMostAxes = 5;

  cuda::CUtensorMapDataType type{};
  uint32_t rank = 0;
  uint64_t extents[kMostAxes] = {};
  uint64_t strides[kMostAxes - 1] = {};  ///< bytes; of all axes but the innermost
  uint32_t box[kMostAxes] = {};
  uint32_t steps[kMostAxes] = {};  ///< the steps between elements of a copy: all are 1
  cuda::CUtensorMapSwizzle swizzle{};
};

/// The arguments for a tensor of these extents, none of which is 0.
TensorMapArguments tensor_map_arguments(const TensorMapRecipe& recipe,
                                        std::span<const int64_t> extents);

/// The fault of a `recipe` that the hardware forbids for any extents, in a few words; empty if
/// there is none.
std::string tensor_map_fault(const TensorMapRecipe& recipe);
/// The same for these extents.
std::string tensor_map_fault(const TensorMapRecipe& recipe, std::span<const int64_t> extents);

}  // namespace braze
