#include "ir/ops/exchange.h"

#include <algorithm>
#include <cmath>

namespace braze {

namespace {

// What a block of NCCL receives in a second, and how many bytes' time a large collective takes more
// than the rate of the links says. Measured between two H200: 422 MB in 14 all_reduces took 12.2 ms
// with 2 blocks and 2.4 ms without a bound, one of 64 MiB 0.26 ms, and one of 1 GiB 3.3 ms.
constexpr double kBlockBytesPerSecond = 17.5e9;
constexpr double kStartBytes = 16 << 20;

}  // namespace

double exchange_seconds(const Target& target, double received, int64_t blocks) {
  double seconds = received / target.link_bytes_per_second;
  if (target.kind == TargetKind::Gpu) {
    seconds += std::min(received, kStartBytes) / target.link_bytes_per_second;
    if (blocks > 0)
      seconds = std::max(seconds, received / (kBlockBytesPerSecond * static_cast<double>(blocks)));
  }
  return target.link_seconds + seconds;
}

int64_t blocks_for_links(const Target& target) {
  return static_cast<int64_t>(std::ceil(target.link_bytes_per_second / kBlockBytesPerSecond));
}

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
