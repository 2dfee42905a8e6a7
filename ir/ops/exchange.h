// exchange.h — how many bytes a collective moves, and how long that takes.
#pragma once

#include "ir/index/expr.h"
#include "ir/ops/collective.h"
#include "ir/target/target.h"

namespace braze {

/// The bytes that each device receives if each has an operand of `bytes`.
Expr received_bytes(CollectiveKind kind, int64_t devices, const Expr& bytes);

/// The time in which a device receives this many bytes, if all devices are ready at the start.
inline double exchange_seconds(const Target& target, double received) {
  return target.link_seconds + received / target.link_bytes_per_second;
}

}  // namespace braze
