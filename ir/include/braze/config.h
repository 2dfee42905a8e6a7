// config.h — how a program uses Braze: one object, given once, before anything else.
//
//   configure({.cache = "off", .threads = 4, .log = [&](LogLevel, std::string_view text) { ... }});
//
// What is not given is as the environment variables say, and where they say nothing, as Braze does.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace braze {

/// How much a line of the log matters.
enum class LogLevel : uint8_t {
  Debug,    ///< what BRAZE_DEBUG asks for
  Info,     ///< what Braze did, for the record
  Warning,  ///< what the user should know although nothing failed
  Error,    ///< what goes wrong where no exception can tell
};

/// "debug", "info", "warning" or "error".
std::string_view name(LogLevel level);

/// Receives the log, in lines without their end. Called from any thread, also from several at once;
/// it must not throw, and not call Braze.
using LogFunction = std::function<void(LogLevel level, std::string_view text)>;

/// One part of a parallel loop; `index` is from 0 and below the loop's count.
using ParallelTask = std::function<void(int index)>;
/// Calls `task(i)` once for every i below `count`, on any threads, and returns when all calls have
/// returned. `count` is at most `Config::threads`. Loops of several CPU devices come at once.
using ParallelFor = std::function<void(int count, const ParallelTask& task)>;

/// What is not set is as the environment variable says, or as the default.
struct Config {
  /// The cache of compiled programs on disk: "on", "readonly" or "off". BRAZE_CACHE, else "on".
  std::optional<std::string> cache = {};
  /// Its folder. BRAZE_CACHE_DIR, else ~/.cache/braze.
  std::optional<std::string> cache_folder = {};
  /// Most bytes of it. BRAZE_CACHE_SIZE, else 1 GiB.
  std::optional<uint64_t> cache_bytes = {};
  /// Threads of each CPU device, the calling one included. BRAZE_THREADS, else as many as the
  /// process may use cores.
  std::optional<int> threads = {};
  /// The host application's own thread pool, in place of threads of Braze's. (A thread for each
  /// device that does what was submitted remains.)
  ParallelFor parallel_for = {};
  /// Bytes that each device may allocate. BRAZE_MEMORY_LIMIT, else no limit.
  std::optional<uint64_t> memory_limit = {};
  /// Receives the log in place of stderr.
  LogFunction log = {};
  /// Where a compilation that fails by a fault of Braze's leaves its reproducer; "": nowhere. The
  /// working directory.
  std::optional<std::string> reproducer_folder = {};
  /// The device of whoever names none, such as "cpu". The first GPU, else the first CPU.
  std::optional<std::string> default_device = {};
};

/// Sets the configuration of the process. Once, before anything of Braze is used: InvalidArgument
/// afterwards, and for values that cannot be.
void configure(Config config);

}  // namespace braze
