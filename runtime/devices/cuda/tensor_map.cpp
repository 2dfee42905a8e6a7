#include "runtime/devices/cuda/tensor_map.h"

#include <optional>

#include "ir/support/text.h"

namespace braze {

namespace {

constexpr int64_t kMostBox = 256;
constexpr int64_t kMostExtent = int64_t{1} << 32;
constexpr int64_t kMostStride = int64_t{1} << 40;
constexpr int64_t kStrideUnit = 16;

// Copies only move bytes, so a dtype that the driver does not know uses another type of its size.
constexpr DTypeTable<cuda::CUtensorMapDataType> kElementTypes = {
    {DType::Bool, cuda::CU_TENSOR_MAP_DATA_TYPE_UINT8},
    {DType::I8, cuda::CU_TENSOR_MAP_DATA_TYPE_UINT8},
    {DType::U8, cuda::CU_TENSOR_MAP_DATA_TYPE_UINT8},
    {DType::F8E4M3, cuda::CU_TENSOR_MAP_DATA_TYPE_UINT8},
    {DType::F8E5M2, cuda::CU_TENSOR_MAP_DATA_TYPE_UINT8},
    {DType::I16, cuda::CU_TENSOR_MAP_DATA_TYPE_UINT16},
    {DType::U16, cuda::CU_TENSOR_MAP_DATA_TYPE_UINT16},
    {DType::I32, cuda::CU_TENSOR_MAP_DATA_TYPE_INT32},
    {DType::U32, cuda::CU_TENSOR_MAP_DATA_TYPE_UINT32},
    {DType::I64, cuda::CU_TENSOR_MAP_DATA_TYPE_INT64},
    {DType::U64, cuda::CU_TENSOR_MAP_DATA_TYPE_UINT64},
    {DType::F16, cuda::CU_TENSOR_MAP_DATA_TYPE_FLOAT16},
    {DType::BF16, cuda::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16},
    {DType::F32, cuda::CU_TENSOR_MAP_DATA_TYPE_FLOAT32},
    {DType::F64, cuda::CU_TENSOR_MAP_DATA_TYPE_FLOAT64},
};

std::optional<cuda::CUtensorMapSwizzle> swizzle_mode(int bytes) {
  switch (bytes) {
    case 0:
      return cuda::CU_TENSOR_MAP_SWIZZLE_NONE;
    case 32:
      return cuda::CU_TENSOR_MAP_SWIZZLE_32B;
    case 64:
      return cuda::CU_TENSOR_MAP_SWIZZLE_64B;
    case 128:
      return cuda::CU_TENSOR_MAP_SWIZZLE_128B;
    default:
      return std::nullopt;
  }
}

}  // namespace

std::string tensor_map_fault(const TensorMapRecipe& recipe) {
  const size_t rank = recipe.extents.size();
  if (rank < 1 || rank > TensorMapArguments::kMostAxes) {
    return fmt::format("it has {} axes, not 1 to {}", rank, TensorMapArguments::kMostAxes);
  }
  if (recipe.box.size() != rank) {
    return fmt::format("its box has {} axes, the tensor {}", recipe.box.size(), rank);
  }
  for (const int64_t extent : recipe.box) {
    if (extent < 1 || extent > kMostBox) {
      return fmt::format("its box has the extent {}, not 1 to {}", extent, kMostBox);
    }
  }
  if (!swizzle_mode(recipe.swizzle)) {
    return fmt::format("its swizzle is {}, not 0, 32, 64 or 128", recipe.swizzle);
  }
  const int64_t row = recipe.box.back() * static_cast<int64_t>(size_of(recipe.dtype));
  if (row % kStrideUnit != 0) {
    return fmt::format("a row of its box has {} bytes, which is not a multiple of {}", row,
                       kStrideUnit);
  }
  if (recipe.swizzle > 0 && row > recipe.swizzle) {
    return fmt::format("a row of its box has {} bytes, more than its swizzle {}", row,
                       recipe.swizzle);
  }
  return "";
}

std::string tensor_map_fault(const TensorMapRecipe& recipe, std::span<const int64_t> extents) {
  auto stride = static_cast<int64_t>(size_of(recipe.dtype));
  for (size_t axis = extents.size(); axis-- > 0;) {
    if (extents[axis] > kMostExtent) {
      return fmt::format("its extent {} is above {}", extents[axis], kMostExtent);
    }
    if (axis == 0) break;
    if (__builtin_mul_overflow(stride, extents[axis], &stride) || stride >= kMostStride) {
      return fmt::format("the stride of axis {} is not below {} bytes", axis - 1, kMostStride);
    }
    if (stride % kStrideUnit != 0) {
      return fmt::format("the stride of axis {} is {} bytes, which is not a multiple of {}",
                         axis - 1, stride, kStrideUnit);
    }
  }
  return "";
}

TensorMapArguments tensor_map_arguments(const TensorMapRecipe& recipe,
                                        std::span<const int64_t> extents) {
  TensorMapArguments arguments;
  arguments.type = kElementTypes[recipe.dtype];
  arguments.rank = static_cast<uint32_t>(extents.size());
  arguments.swizzle = swizzle_mode(recipe.swizzle).value_or(cuda::CU_TENSOR_MAP_SWIZZLE_NONE);
  uint64_t stride = size_of(recipe.dtype);
  for (size_t i = 0; i < extents.size(); ++i) {
    const size_t axis = extents.size() - 1 - i;
    arguments.extents[i] = static_cast<uint64_t>(extents[axis]);
    arguments.box[i] = static_cast<uint32_t>(recipe.box[axis]);
    arguments.steps[i] = 1;
    stride *= arguments.extents[i];
    if (i + 1 < extents.size()) arguments.strides[i] = stride;
  }
  return arguments;
}

}  // namespace braze
