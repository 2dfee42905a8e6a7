// bools.h — bool in memory is a byte that is 0 or 1.
//
// Kernels, interpreters and copies rely on that. Where bytes from outside enter host memory, every
// byte other than 0 becomes 1, because it is true for NumPy and C. GPU memory may hold other bytes,
// because the host does not see them there. Code for GPUs reads every byte other than 0 as true,
// and where an Array is copied to the host, such bytes become 1 (PinnedMemory gets them unchanged).
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

namespace braze {

inline bool are_bools(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b <= std::byte{1}; });
}

inline void make_bools(std::span<std::byte> bytes) {
  for (std::byte& b : bytes) b = b == std::byte{0} ? b : std::byte{1};
}

}  // namespace braze
