// collective.h — what the devices along one axis of a mesh do together with a tensor of each.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "braze/mesh_axis.h"

namespace braze {

/// Device i of the n along the axis has operand x[i]. Blocks are the n equal parts of a tensor
/// along its first axis.
enum class CollectiveKind : uint8_t {
  AllReduce,      ///< everywhere all x combined by a monoid, in the order of the devices
  AllGather,      ///< everywhere all x, one behind the other along the first axis
  ReduceScatter,  ///< on device i block i of all x combined
  BroadcastOver,  ///< everywhere x of the device `offset`
  Permute,        ///< on device i + offset (modulo n) x[i]
  AllToAll,       ///< block j of the result on device i is block i of x[j]
};

/// "all_reduce", as texts have it.
std::string_view name(CollectiveKind kind);
std::optional<CollectiveKind> parse_collective(std::string_view text);
/// Whether a monoid says how operands are combined.
constexpr bool reduces(CollectiveKind kind) {
  return kind == CollectiveKind::AllReduce || kind == CollectiveKind::ReduceScatter;
}
/// The word for `offset` in texts: "root", "shift", or empty where there is none.
constexpr std::string_view offset_word(CollectiveKind kind) {
  return kind == CollectiveKind::BroadcastOver ? "root"
         : kind == CollectiveKind::Permute     ? "shift"
                                               : "";
}
/// Whether the result is the same on all devices along the axis.
constexpr bool makes_equal(CollectiveKind kind) {
  return kind == CollectiveKind::AllReduce || kind == CollectiveKind::AllGather ||
         kind == CollectiveKind::BroadcastOver;
}

}  // namespace braze
