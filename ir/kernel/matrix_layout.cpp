#include "ir/kernel/matrix_layout.h"

namespace braze {

int64_t matrix_byte(const MatrixLayout& layout, int64_t start, int64_t mn, int64_t k,
                    int64_t size) {
  // The rows of a core matrix are along mn if the contracted axis is innermost, and else along k.
  const int64_t width = layout.swizzle == 0 ? 16 : layout.swizzle;
  const int64_t row = layout.k_major ? mn : k;
  const int64_t inner = (layout.k_major ? k : mn) * size;
  const int64_t byte = start + row / 8 * layout.stride + row % 8 * width +
                       inner / width * layout.leading + inner % width;
  return swizzled(byte, layout.swizzle);
}

}  // namespace braze
