// condition_variable.h — a condition variable that asks nothing new of the C++ library where it
// runs. std::condition_variable::wait has had another symbol version since GCC 12, which would keep
// the runtime library off systems with an older libstdc++.
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
    // It would wait for those who wait, and they stayed in the parent.
    if (!is_forked()) pthread_cond_destroy(&condition_);
  }

  void notify_one() { pthread_cond_signal(&condition_); }
  void notify_all() { pthread_cond_broadcast(&condition_); }

  /// Like its namesake in std: also returns now and then without a reason.
  void wait(std::unique_lock<std::mutex>& lock) {
    pthread_cond_wait(&condition_, lock.mutex()->native_handle());
  }
  /// Returns when `done()` holds, which is called under the lock.
  template <class Predicate>
  void wait(std::unique_lock<std::mutex>& lock, Predicate done) {
    while (!done()) wait(lock);
  }
  /// The same as the first, for `limit` at most.
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
