// collective.h — collectives: operations that the devices along one axis of a mesh do together.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "braze/mesh_axis.h"

namespace braze {

/// Of the n devices along the axis, device i has the operand x[i]. Blocks are the n equal parts of
/// a tensor along its first axis.
enum class CollectiveKind : uint8_t {
  AllReduce,      ///< each device gets all x combined by a monoid, in the order of the devices
  AllGather,      ///< each device gets all x, one after the other along the first axis
  ReduceScatter,  ///< device i gets block i of all x combined
  BroadcastOver,  ///< each device gets x of the device `offset`
  Permute,        ///< device i + offset (modulo n) gets x[i]
  AllToAll,       ///< block j of the result on device i is block i of x[j]
};

/// The name in texts, such as "all_reduce".
std::string_view name(CollectiveKind kind);
std::optional<CollectiveKind> parse_collective(std::string_view text);
/// Whether the collective combines its operands by a monoid.
constexpr bool reduces(CollectiveKind kind) {
  return kind == CollectiveKind::AllReduce || kind == CollectiveKind::ReduceScatter;
}
/// The word for `offset` in texts: "root" or "shift"; empty for kinds without an offset.
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
