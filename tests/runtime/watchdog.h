// watchdog.h — ends a test that hangs, with a message.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

namespace braze::test {

/// Ends the process if it lives for longer than `limit`.
class Watchdog {
 public:
  /// `what` lives for ever.
  explicit Watchdog(const char* what, std::chrono::seconds limit = std::chrono::seconds(120))
      : thread_([this, what, limit] {
          std::unique_lock lock(mutex_);
          if (over_.wait_for(lock, limit, [this] { return is_over_; })) return;
          std::fprintf(stderr, "%s: hangs, for more than %d s\n", what,
                       static_cast<int>(limit.count()));
          std::_Exit(EXIT_FAILURE);
        }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    over_.notify_one();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace braze::test
