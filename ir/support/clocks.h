// clocks.h — time that steps of the work take.
#pragma once

#include <chrono>
#include <ctime>
#include <utility>

namespace braze {

/// Processor time of a thread, which other work on the machine does not lengthen.
class ThreadClock {
 public:
  /// Seconds that this thread ran since the last lap.
  double lap() {
    const double then = std::exchange(last_, now());
    return last_ - then;
  }

 private:
  static double now() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  double last_ = now();
};

/// Time by the clock, for what other threads or processes do.
class WallClock {
 public:
  /// Seconds since the last lap.
  double lap() {
    const auto then = std::exchange(last_, std::chrono::steady_clock::now());
    return std::chrono::duration<double>(last_ - then).count();
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace braze
