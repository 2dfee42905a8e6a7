// gguf_blocks.h — the tensor types of .gguf files, and the meaning of the bytes of a block.
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

/// A block as integers: element i is scale[i / group] * q[i] + offset[i / group].
struct GgufBlock {
  std::array<int8_t, kMostBlock> q;  ///< unsigned for types that have offsets
  std::array<float, 16> scale, offset;
};

/// One tensor type.
struct GgufType {
  uint32_t number;        ///< in the file
  std::string_view name;  ///< the name in ggml
  uint32_t elements;      ///< the elements of a block; 1 if there are no blocks
  uint32_t bytes;         ///< the bytes of a block
  std::optional<DType> dtype;
  // For blocks that Braze can unpack:
  int bits = 0;                   ///< the bits of q
  uint32_t group = 0;             ///< the number of elements that share a scale
  DType scale_type = DType::F16;  ///< a type that represents every scale and offset exactly
  bool has_offsets = false;       ///< if true, q is unsigned
  void (*unpack)(const std::byte* bytes, GgufBlock& block) = nullptr;
};

/// The type with this number; null if Braze does not know it.
const GgufType* find_gguf_type(uint32_t number);
std::span<const GgufType> gguf_types();

}  // namespace braze
