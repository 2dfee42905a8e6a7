// clocks.h — clocks that measure how long steps of the work take.
#pragma once

#include <chrono>
#include <ctime>
#include <utility>

namespace braze {

/// Measures the processor time of a thread. Other work on the machine does not lengthen it.
class ThreadClock {
 public:
  /// The seconds for which this thread has run since the last lap.
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

/// Measures the time that passes, for work that other threads or processes do.
class WallClock {
 public:
  /// The seconds that have passed since the last lap.
  double lap() {
    const auto then = std::exchange(last_, std::chrono::steady_clock::now());
    return std::chrono::duration<double>(last_ - then).count();
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace braze
