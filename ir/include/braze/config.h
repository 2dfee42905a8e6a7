// config.h — the configuration of Braze in a process: one object, given once, before anything else.
//
//   configure({.cache = "off", .threads = 4, .log = [&](LogLevel, std::string_view text) { ... }});
//
// For each member that is not set, Braze uses the environment variable, and without one the
// default.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace braze {

/// The importance of a line of the log.
enum class LogLevel : uint8_t {
  Debug,    ///< output that BRAZE_DEBUG requested
  Info,     ///< what Braze did, for the record
  Warning,  ///< something that the user should know although nothing failed
  Error,    ///< a failure that no exception can report
};

/// "debug", "info", "warning" or "error".
std::string_view name(LogLevel level);

/// Receives the log, line by line, without line ends. Any thread calls it, and several at once may.
/// It must not throw, and must not call Braze.
using LogFunction = std::function<void(LogLevel level, std::string_view text)>;

/// One part of a parallel loop. `index` is at least 0 and less than the count of the loop.
using ParallelTask = std::function<void(int index)>;
/// Calls `task(i)` once for every i from 0 to `count` - 1, on any threads, and returns when all
/// calls have returned. `count` is at most `Config::threads`. Several CPU devices may run loops at
/// the same time.
using ParallelFor = std::function<void(int count, const ParallelTask& task)>;

/// For a member that is not set, the environment variable decides, and then the default.
struct Config {
  /// The cache of compiled programs on disk: "on", "readonly" or "off". Variable BRAZE_CACHE;
  /// default "on".
  std::optional<std::string> cache = {};
  /// The folder of the cache. Variable BRAZE_CACHE_DIR; default ~/.cache/braze.
  std::optional<std::string> cache_folder = {};
  /// The size limit of the cache in bytes. Variable BRAZE_CACHE_SIZE; default 1 GiB.
  std::optional<uint64_t> cache_bytes = {};
  /// The number of threads of each CPU device, including the calling thread. Variable
  /// BRAZE_THREADS; default: the number of cores that the process may use.
  std::optional<int> threads = {};
  /// The host program's own thread pool, used in place of threads that Braze makes. Each device
  /// still has one thread, which does the work that was submitted.
  ParallelFor parallel_for = {};
  /// The number of bytes that each device may allocate. Variable BRAZE_MEMORY_LIMIT; default: no
  /// limit.
  std::optional<uint64_t> memory_limit = {};
  /// Receives the log in place of stderr.
  LogFunction log = {};
  /// The folder in which a compilation that fails by a fault of Braze leaves its reproducer; with
  /// "" it leaves none. Default: the working directory.
  std::optional<std::string> reproducer_folder = {};
  /// The device that is used when no device is named, such as "cpu". Default: the first GPU, or the
  /// first CPU if there is none. `configure` checks the name; whether there is such a device shows
  /// when it is first used, because only CUDA's driver knows the GPUs.
  std::optional<std::string> default_device = {};
};

/// Sets the configuration of the process. Call it once, before any other use of Braze.
/// Throws InvalidArgument if Braze was used before, and for impossible values. Part of the runtime.
void configure(Config config);

}  // namespace braze
