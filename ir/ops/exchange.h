// exchange.h — what a collective moves, and how long that takes.
#pragma once

#include "ir/index/expr.h"
#include "ir/ops/collective.h"
#include "ir/target/target.h"

namespace braze {

/// The bytes that each of so many devices receives, for an operand of `bytes` on each.
Expr received_bytes(CollectiveKind kind, int64_t devices, const Expr& bytes);

/// The time in which a device receives so many bytes, from a start at which all are ready.
inline double exchange_seconds(const Target& target, double received) {
  return target.link_seconds + received / target.link_bytes_per_second;
}

}  // namespace braze
