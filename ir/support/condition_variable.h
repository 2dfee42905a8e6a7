// condition_variable.h — a condition variable that works with older C++ libraries. Since GCC 12,
// std::condition_variable::wait has a new symbol version, so a runtime library that uses it could
// not be loaded on systems with an older libstdc++.
#pragma once

#include <pthread.h>

#include <chrono>
#include <cstdint>
#include <ctime>
#include <mutex>

#include "ir/support/fork.h"

namespace braze {

class ConditionVariable {
 public:
  ConditionVariable() = default;
  ConditionVariable(const ConditionVariable&) = delete;
  ConditionVariable& operator=(const ConditionVariable&) = delete;
  ~ConditionVariable() {
    // In a forked child this would wait for threads that wait, but those exist only in the parent.
    if (!is_forked()) pthread_cond_destroy(&condition_);
  }

  void notify_one() { pthread_cond_signal(&condition_); }
  void notify_all() { pthread_cond_broadcast(&condition_); }

  /// Like the function of std, it sometimes returns without a notification.
  void wait(std::unique_lock<std::mutex>& lock) {
    pthread_cond_wait(&condition_, lock.mutex()->native_handle());
  }
  /// Returns when `done()` is true. `done` is called under the lock.
  template <class Predicate>
  void wait(std::unique_lock<std::mutex>& lock, Predicate done) {
    while (!done()) wait(lock);
  }
  /// The same as wait(lock), but it returns after `limit` at the latest.
  void wait_for(std::unique_lock<std::mutex>& lock, std::chrono::nanoseconds limit) {
    constexpr int64_t kSecond = 1'000'000'000;
    timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    const int64_t nanoseconds = end.tv_nsec + limit.count();
    end.tv_sec += nanoseconds / kSecond;
    end.tv_nsec = nanoseconds % kSecond;
    pthread_cond_clockwait(&condition_, lock.mutex()->native_handle(), CLOCK_MONOTONIC, &end);
  }

 private:
  pthread_cond_t condition_ = PTHREAD_COND_INITIALIZER;
};

}  // namespace braze
