#include "ir/support/env.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>

namespace braze {

std::span<const EnvVariable> env_variables() {
  static constexpr EnvVariable kAll[] = {
      kEnvDebug,        kEnvDump,       kEnvThreads,      kEnvCpuDevices, kEnvTarget,
      kEnvMemoryLimit,  kEnvCudaDriver, kEnvNccl,         kEnvRank,       kEnvWorld,
      kEnvRendezvous,   kEnvMpi,        kEnvRankLate,     kEnvRankLimit,  kEnvCheckRanks,
      kEnvSyncLaunches, kEnvOverlap,    kEnvPtxas,        kEnvCache,      kEnvCacheDir,
      kEnvCacheSize,    kEnvCacheSync,  kEnvCacheSignKey, kEnvTrustKeys,  kEnvTrace};
  return kAll;
}

std::optional<std::string> read_env(const EnvVariable& variable) {
  const char* value = std::getenv(variable.name);
  if (!value || !*value) return std::nullopt;
  return value;
}

std::optional<int64_t> read_env_int(const EnvVariable& variable, int64_t min, int64_t max) {
  const std::optional<std::string> text = read_env(variable);
  if (!text) return std::nullopt;
  int64_t value = 0;
  const char* end = text->data() + text->size();
  const auto result = std::from_chars(text->data(), end, value);
  if (result.ec != std::errc() || result.ptr != end || value < min || value > max) {
    fail(codes::kEnvironment,
         fmt::format("{} is \"{}\", but must be an integer from {} to {}", variable.name, *text,
                     min, max),
         {.location = {},
          .node = "",
          .fix = fmt::format("{}: {}", variable.name, variable.meaning)});
  }
  return value;
}

}  // namespace braze
