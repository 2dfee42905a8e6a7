// dot_layouts.h — the layouts of tiles for a dot that the matrix units of single warps multiply.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/code/layout.h"

namespace braze {

/// The number of summed indices that one instruction multiplies: 16 for 16-bit factors, and 8 for
/// f32 factors, which are rounded to tf32.
inline constexpr int64_t kHalfDotDepth = 16, kTf32DotDepth = 8;

/// The layouts of the sums and of both operands. The sums are spread over rows x columns of
/// threads, whose warps have 8 x 4 threads; each thread has `vector` neighbours of a row. The
/// contracted axis of the operands has `depth` elements: every warp multiplies matrices of 16 x
/// depth and depth x 8. With tf32, `vector` is 2, 4 or 8: a thread's vector has two sums of each of
/// vector/2 matrices, whose columns alternate; so the right operand's columns are vectors too. With
/// 16 bits, `vector` is 2: ldmatrix takes columns that lie side by side.
struct DotLayouts {
  Layout sums, left, right;
};
DotLayouts warp_dot_layouts(const std::vector<int64_t>& extents,
                            const std::vector<int64_t>& threads, int64_t vector, int64_t depth);

}  // namespace braze
