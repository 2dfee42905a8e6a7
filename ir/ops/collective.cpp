#include "ir/ops/collective.h"

#include <utility>

namespace braze {

namespace {

constexpr std::pair<CollectiveKind, std::string_view> kNames[] = {
    {CollectiveKind::AllReduce, "all_reduce"},
    {CollectiveKind::AllGather, "all_gather"},
    {CollectiveKind::ReduceScatter, "reduce_scatter"},
    {CollectiveKind::BroadcastOver, "broadcast_over"},
    {CollectiveKind::Permute, "permute"},
    {CollectiveKind::AllToAll, "all_to_all"},
};

}  // namespace

std::string_view name(CollectiveKind kind) { return kNames[static_cast<size_t>(kind)].second; }

std::optional<CollectiveKind> parse_collective(std::string_view text) {
  for (const auto& [kind, known] : kNames)
    if (known == text) return kind;
  return std::nullopt;
}

}  // namespace braze
