// dot_layouts.h — the layouts of tiles for a dot that the matrix units of single warps multiply.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/code/layout.h"

namespace braze {

/// The layouts of the sums and of both operands. The sums are spread over rows x columns of
/// threads, whose warps have 8 x 4 threads; each thread has `vector` (2, 4 or 8) neighbours of a
/// row. The contracted axis of the operands has 8 elements: every warp multiplies matrices of 16 x
/// 8 and 8 x 8 (tf32). A thread's vector has two sums of each of vector/2 matrices, whose columns
/// alternate; so the right operand's columns are vectors too.
struct DotLayouts {
  Layout sums, left, right;
};
DotLayouts warp_dot_layouts(const std::vector<int64_t>& extents,
                            const std::vector<int64_t>& threads, int64_t vector);

}  // namespace braze
