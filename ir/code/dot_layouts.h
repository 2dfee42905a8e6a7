// dot_layouts.h — the layouts of tiles for a dot that the matrix units of single warps multiply.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/code/layout.h"

namespace braze {

/// Sums spread over rows x columns of threads in warps of 8 x 4, `vector` neighbours of a row in
/// each (2, 4 or 8), and the operands, whose contracted axis has 8 elements: every warp multiplies
/// matrices of 16 x 8 and 8 x 8 (tf32). A thread's vector has two sums of each of vector/2
/// matrices, whose columns alternate; so the right operand's columns are vectors too.
struct DotLayouts {
  Layout sums, left, right;
};
DotLayouts warp_dot_layouts(const std::vector<int64_t>& extents,
                            const std::vector<int64_t>& threads, int64_t vector);

}  // namespace braze
