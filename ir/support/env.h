// env.h — every environment variable that Braze reads, in one table.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "braze/error.h"

namespace braze {

namespace codes {
inline constexpr Code kEnvironment{"environment", ErrorKind::InvalidArgument,
                                   "An environment variable has a value that is not possible."};
}  // namespace codes

struct EnvVariable {
  const char* name;
  std::string_view meaning;
};

inline constexpr EnvVariable kEnvDebug{"BRAZE_DEBUG",
                                       "0 to 5: how much the compiler prints to stderr"};
inline constexpr EnvVariable kEnvDump{
    "BRAZE_DUMP", "folder that receives the text of every step of every compilation"};
inline constexpr EnvVariable kEnvThreads{"BRAZE_THREADS", "worker threads of the CPU devices"};
inline constexpr EnvVariable kEnvCpuDevices{"BRAZE_CPU_DEVICES",
                                            "how many CPU devices exist (default 1)"};
inline constexpr EnvVariable kEnvTarget{"BRAZE_CPU_TARGET",
                                        "CPU target to generate for, such as x86-64-v3"};
inline constexpr EnvVariable kEnvMemoryLimit{"BRAZE_MEMORY_LIMIT",
                                             "bytes that one device may allocate"};
inline constexpr EnvVariable kEnvCudaDriver{
    "BRAZE_CUDA_DRIVER", "CUDA driver to open instead of libcuda.so.1; none: no GPUs"};
inline constexpr EnvVariable kEnvNccl{
    "BRAZE_NCCL", "NCCL to open for GPUs that work together, instead of the one that is found"};
inline constexpr EnvVariable kEnvRank{
    "BRAZE_RANK", "which of the processes that run a program together this one is, from 0"};
inline constexpr EnvVariable kEnvWorld{"BRAZE_WORLD", "how many processes these are"};
inline constexpr EnvVariable kEnvRendezvous{
    "BRAZE_RENDEZVOUS", "folder that all of them see, new for each run, in which they meet"};
inline constexpr EnvVariable kEnvMpi{
    "BRAZE_MPI", "plugin for MPI to open, instead of the one that is found; none: no MPI"};
inline constexpr EnvVariable kEnvRankLate{
    "BRAZE_RANK_LATE", "seconds after which a process that others wait for is named (default 30)"};
inline constexpr EnvVariable kEnvRankLimit{"BRAZE_RANK_LIMIT",
                                           "seconds after which it is given up (default 600)"};
inline constexpr EnvVariable kEnvCheckRanks{
    "BRAZE_CHECK_RANKS", "1: processes compare what they run at every call, not the first alone"};
inline constexpr EnvVariable kEnvSyncLaunches{
    "BRAZE_SYNC_LAUNCHES", "1: wait for every GPU kernel, so that an error names the one at fault"};
inline constexpr EnvVariable kEnvOverlap{
    "BRAZE_OVERLAP", "0: no GPU kernel begins before the kernel before it has ended"};

inline constexpr EnvVariable kEnvPtxas{
    "BRAZE_PTXAS", "PTX assembler: \"plugin\", the path of a ptxas, or \"none\""};
inline constexpr EnvVariable kEnvTrace{
    "BRAZE_TRACE", "file that receives a timeline for Perfetto; %p in it is the process id"};

inline constexpr EnvVariable kEnvCache{"BRAZE_CACHE",
                                       "cache of compiled programs: on (default), readonly or off"};
inline constexpr EnvVariable kEnvCacheDir{
    "BRAZE_CACHE_DIR", "folder of that cache (default ~/.cache/braze, or as XDG_CACHE_HOME says)"};
inline constexpr EnvVariable kEnvCacheSize{"BRAZE_CACHE_SIZE",
                                           "most bytes of that cache, such as 512M (default 1G)"};
inline constexpr EnvVariable kEnvCacheSync{"BRAZE_CACHE_SYNC",
                                           "1: entries of that cache survive a power failure"};

inline constexpr EnvVariable kEnvCacheSignKey{"BRAZE_CACHE_SIGN_KEY",
                                              "secret key that signs what goes into that cache"};
inline constexpr EnvVariable kEnvTrustKeys{"BRAZE_TRUST_KEYS",
                                           "public keys, or folders of them, with colons between: "
                                           "who may sign packages and cache entries"};

/// All variables above, for `braze doctor --env`.
std::span<const EnvVariable> env_variables();

/// The value of a variable; nullopt if it is unset or empty.
std::optional<std::string> read_env(const EnvVariable& variable);
/// The value as an integer within [min, max]; nullopt if it is unset. Throws InvalidArgument if it
/// is malformed.
std::optional<int64_t> read_env_int(const EnvVariable& variable, int64_t min, int64_t max);

}  // namespace braze
