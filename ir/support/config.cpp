#include "ir/support/config.h"

#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <mutex>

namespace braze {

namespace {

constexpr int kMaxThreads = 1024;

struct Process {
  std::mutex mutex;
  std::atomic<bool> fixed{false};  // it was read, and must not change any more
  bool given = false;
  Config config;
};

// It is never destroyed, because threads may log until the process ends.
Process& process() {
  static auto* const process = new Process;
  return *process;
}

void check(const Config& config) {
  const auto refuse = [](std::string message) { fail(codes::kBadSetting, std::move(message)); };
  if (config.threads && (*config.threads < 1 || *config.threads > kMaxThreads))
    refuse(fmt::format("the number of threads must be from 1 to {}, not {}", kMaxThreads,
                       *config.threads));
  if (config.cache && *config.cache != "on" && *config.cache != "readonly" &&
      *config.cache != "off")
    refuse(fmt::format("the cache must be \"on\", \"readonly\" or \"off\", not \"{}\"",
                       *config.cache));
}

}  // namespace

std::string_view name(LogLevel level) {
  constexpr std::string_view kNames[] = {"debug", "info", "warning", "error"};
  return kNames[static_cast<size_t>(level)];
}

void set_config(Config config) {
  check(config);
  Process& p = process();
  const std::lock_guard lock(p.mutex);
  if (p.fixed.load() || p.given)
    fail(codes::kConfiguredLate,
         p.given ? "Braze was already configured"
                 : "Braze was already used, with the configuration of that time",
         {.fix = "call configure() once, before anything else of Braze; later, use "
                 "set_cpu_threads, set_memory_limit and DeviceGuard"});
  p.config = std::move(config);
  p.given = true;
}

const Config& config() {
  Process& p = process();
  if (!p.fixed.load(std::memory_order_acquire)) {
    const std::lock_guard lock(p.mutex);
    p.fixed.store(true, std::memory_order_release);
  }
  return p.config;
}

void write_log(LogLevel level, std::string_view text) noexcept {
  try {
    const Config& c = config();
    if (c.log) return c.log(level, text);
    const std::string_view prefix = level == LogLevel::Debug     ? ""
                                    : level == LogLevel::Warning ? "braze: warning: "
                                                                 : "braze: ";
    const std::string line = fmt::format("{}{}\n", prefix, text);
    std::fwrite(line.data(), 1, line.size(), stderr);
  } catch (...) {
    // A missing line in the log is better than a program that fails.
  }
}

}  // namespace braze
