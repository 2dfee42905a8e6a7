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
  uint32_t steps[kMostAxes] = {};  ///< of the elements that a copy takes: all of them
  cuda::CUtensorMapSwizzle swizzle{};
};

/// For a tensor of these extents, none of which is 0.
TensorMapArguments tensor_map_arguments(const TensorMapRecipe& recipe,
                                        std::span<const int64_t> extents);

/// What the hardware forbids in `recipe` for any extents, in a few words; empty if nothing.
std::string tensor_map_fault(const TensorMapRecipe& recipe);
/// The same for these extents.
std::string tensor_map_fault(const TensorMapRecipe& recipe, std::span<const int64_t> extents);

}  // namespace braze
