// exchange.h — how many bytes a collective moves, how long that takes, and which collectives can be
// one.
#pragma once

#include "ir/index/expr.h"
#include "ir/ops/collective.h"
#include "ir/target/target.h"

namespace braze {

/// Whether each element of the result comes from the elements at the same place of the operands.
/// Several such collectives are one if their operands lie one behind another, and their results
/// likewise.
constexpr bool keeps_places(CollectiveKind kind) {
  return kind == CollectiveKind::AllReduce || kind == CollectiveKind::BroadcastOver ||
         kind == CollectiveKind::Permute;
}

/// The bytes that each device receives if each has an operand of `bytes`.
Expr received_bytes(CollectiveKind kind, int64_t devices, const Expr& bytes);

/// The time in which a device receives this many bytes, if all devices are ready at the start.
/// Between GPUs, `blocks` is the most blocks that the collective may have, or 0 if it takes as many
/// as the links need.
double exchange_seconds(const Target& target, double received, int64_t blocks = 0);

/// As many blocks as the links between GPUs need.
int64_t blocks_for_links(const Target& target);

}  // namespace braze
