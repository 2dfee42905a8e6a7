// bools.h — bool in memory: a byte that is 0 or 1.
//
// Kernels, interpreters and copies rely on that. Bytes from outside are made so where they enter
// memory of the host: any other byte than 0 is true, as it is for NumPy and C. Memory of a GPU may
// hold other bytes, for the host does not see them. The code for GPUs reads them by the same rule,
// and what an Array copies to the host is made so there (PinnedMemory gets the bytes as they are).
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
