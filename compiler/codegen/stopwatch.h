// stopwatch.h — processor time of a thread, which other work on the machine does not lengthen.
#pragma once

#include <ctime>
#include <utility>

namespace braze {

class Stopwatch {
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

}  // namespace braze
