// arena.h — how the temporaries of a Program lie in its arena.
#pragma once

#include <cstdint>

namespace braze {

/// Every slot begins at a multiple of this many bytes.
inline constexpr int64_t kArenaAlignment = 64;

}  // namespace braze
