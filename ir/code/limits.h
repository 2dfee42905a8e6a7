// limits.h — how large the types of Tile IR and Kernel IR may be.
#pragma once

#include <cstddef>

namespace braze {

/// The most axes of a tile, a layout, or an array of registers.
inline constexpr size_t kMostAxesOfValue = 16;

}  // namespace braze
