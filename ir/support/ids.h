// ids.h — typed 32-bit handles into vectors.
//
// Nodes and values are named by index, not by pointer: handles are half the size, cannot dangle
// across a copy of their owner, and the type keeps a value of one IR out of another.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace braze {

template <class Tag>
struct Id {
  static constexpr uint32_t kNone = UINT32_MAX;
  uint32_t index = kNone;

  constexpr Id() = default;
  constexpr explicit Id(size_t i) : index(static_cast<uint32_t>(i)) {}

  constexpr explicit operator bool() const { return index != kNone; }
  friend constexpr auto operator<=>(Id, Id) = default;
};

}  // namespace braze

template <class Tag>
struct std::hash<braze::Id<Tag>> {
  size_t operator()(braze::Id<Tag> id) const noexcept { return std::hash<uint32_t>()(id.index); }
};
