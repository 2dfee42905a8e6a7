#include "ir/support/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace braze {

unsigned count_cores() {
  // The library reads a file of the system for every answer.
  static const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  return cores;
}

void parallel_for(size_t count, unsigned threads, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  size_t failed = count;  // the smallest i that failed
  std::exception_ptr error;
  // Numbers are taken in order. So when one fails, all smaller ones have begun, and they finish.
  const auto drain = [&] {
    for (size_t i; (i = next++) < count;) {
      try {
        work(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (i < failed) failed = i, error = std::current_exception();
        next = count;
      }
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (unsigned t = 1; t < std::min<size_t>(threads, count); ++t) helpers.emplace_back(drain);
    drain();
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace braze
