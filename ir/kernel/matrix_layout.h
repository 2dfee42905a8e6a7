// matrix_layout.h — where the elements of matrix instructions lie: in shared memory, as swizzles
// and descriptors place them, and in the registers of a warp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ir/code/code.h"

namespace braze {

/// The byte that a copy or wgmma with this swizzle (0, 32, 64, 128) means by `byte`: the 16-byte
/// chunk within a panel row is exchanged by the number of the row.
constexpr int64_t swizzled(int64_t byte, int64_t swizzle) {
  const int64_t rows = swizzle / 16 - 1;  // 7, 3, 1
  return swizzle == 0 ? byte : byte ^ ((byte >> 7 & rows) << 4);
}

/// The byte of element (mn, k) of a wgmma operand that starts at byte `start`; `size` is that of
/// an element.
int64_t matrix_byte(const MatrixLayout& layout, int64_t start, int64_t mn, int64_t k, int64_t size);

/// Rows and columns of what a thread of a warp holds in register `r` (16-bit pairs count apart).
struct MatrixPlace {
  size_t row, column;
};
/// An accumulator of 16 rows (wgmma: those of the warp), also a 16-bit A operand.
constexpr MatrixPlace accumulator_place(size_t thread, size_t r) {
  return {r / 2 % 2 * 8 + thread / 4, r / 4 * 8 + thread % 4 * 2 + r % 2};
}
/// A tf32 A operand.
constexpr MatrixPlace tf32_place(size_t thread, size_t r) {
  return {r % 2 * 8 + thread / 4, r / 2 * 4 + thread % 4};
}

}  // namespace braze
