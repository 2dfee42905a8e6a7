#include "ir/ops/exchange.h"

namespace braze {

Expr received_bytes(CollectiveKind kind, int64_t devices, const Expr& bytes) {
  const Expr of_others = bytes * (devices - 1);
  switch (kind) {
    case CollectiveKind::AllGather:
      return of_others;
    case CollectiveKind::AllReduce:  // it gets its block of all others, and then their results
      return floordiv(of_others * 2, devices);
    case CollectiveKind::ReduceScatter:
    case CollectiveKind::AllToAll:
      return floordiv(of_others, devices);
    case CollectiveKind::BroadcastOver:
    case CollectiveKind::Permute:
      break;
  }
  return devices > 1 ? bytes : Expr(0);
}

}  // namespace braze
