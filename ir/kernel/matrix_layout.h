// matrix_layout.h — computes where the elements of matrix instructions are: in shared memory, where
// swizzles and descriptors place them, and in the registers of a warp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ir/code/code.h"

namespace braze {

/// The byte in memory that a copy or wgmma with this swizzle (0, 32, 64, 128) accesses as `byte`:
/// the number of the 16-byte chunk within a row of a panel is xored with the number of the row.
constexpr int64_t swizzled(int64_t byte, int64_t swizzle) {
  const int64_t rows = swizzle / 16 - 1;  // 7, 3, 1
  return swizzle == 0 ? byte : byte ^ ((byte >> 7 & rows) << 4);
}

/// The byte of element (mn, k) of a wgmma operand that starts at byte `start`. `size` is the size
/// of an element.
int64_t matrix_byte(const MatrixLayout& layout, int64_t start, int64_t mn, int64_t k, int64_t size);

/// The row and the column of the element that a thread of a warp holds in register `r`. The two
/// halves of a 16-bit pair count as two registers.
struct MatrixPlace {
  size_t row, column;
};
/// The place in an accumulator of 16 rows (for wgmma, those of the warp), and in a 16-bit operand
/// A.
constexpr MatrixPlace accumulator_place(size_t thread, size_t r) {
  return {r / 2 % 2 * 8 + thread / 4, r / 4 * 8 + thread % 4 * 2 + r % 2};
}
/// The place in a tf32 operand A.
constexpr MatrixPlace tf32_place(size_t thread, size_t r) {
  return {r % 2 * 8 + thread / 4, r / 2 * 4 + thread % 4};
}

}  // namespace braze
