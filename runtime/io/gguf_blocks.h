// gguf_blocks.h — the tensor types of .gguf files, and what the bytes of a block mean.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "braze/dtype.h"

namespace braze {

inline constexpr size_t kMostBlock = 256;  // elements

/// A block as whole numbers: element i is scale[i / group] * q[i] + offset[i / group].
struct GgufBlock {
  std::array<int8_t, kMostBlock> q;  ///< without sign for types that have offsets
  std::array<float, 16> scale, offset;
};

/// One type of tensors.
struct GgufType {
  uint32_t number;        ///< in the file
  std::string_view name;  ///< as ggml calls it
  uint32_t elements;      ///< of a block; 1 if there are none
  uint32_t bytes;         ///< of a block
  std::optional<DType> dtype;
  // Of blocks that Braze unpacks:
  int bits = 0;                   ///< of q
  uint32_t group = 0;             ///< elements of one scale
  DType scale_type = DType::F16;  ///< in which every scale and offset is exact
  bool has_offsets = false;       ///< then q has no sign
  void (*unpack)(const std::byte* bytes, GgufBlock& block) = nullptr;
};

/// nullptr for a number that Braze does not know.
const GgufType* find_gguf_type(uint32_t number);
std::span<const GgufType> gguf_types();

}  // namespace braze
