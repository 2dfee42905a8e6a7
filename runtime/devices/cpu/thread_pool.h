// thread_pool.h — fork-join parallelism over a range, with little overhead for short regions.
//
// One thread at a time leads a region and takes part in it. Workers wait for the next region, first
// spinning, then asleep. A region never waits for a worker that has not joined it.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "braze/config.h"
#include "ir/support/condition_variable.h"

namespace braze {

class ThreadPool {
 public:
  ThreadPool() = default;
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Only one thread at a time may call the following functions.

  /// Makes the threads of the host program do the work, in place of the pool's own.
  void set_host(ParallelFor host);

  /// Sets the number of threads of a region, including the leading thread. Workers start at the
  /// first region. If the system refuses threads, fewer take part.
  void set_threads(int count);
  int threads() const { return threads_; }

  /// Calls `body(begin, end, worker)` for pieces of [0, count) until all are done; `worker` is less
  /// than `threads()` and belongs to one thread at a time. Rethrows the first error. Workers that
  /// sleep are woken only if `wake`.
  template <class Body>
  void run(int64_t count, bool wake, const Body& body) {
    if (count <= 1 || threads_ == 1) {
      if (count > 0) body(int64_t{0}, count, 0);
      return;
    }
    const Function call = [](const void* context, int64_t begin, int64_t end, int worker) {
      (*static_cast<const Body*>(context))(begin, end, worker);
    };
    run_region(count, wake, call, &body);
  }

 private:
  /// The indices that a thread does first. Regions of like size give a thread the same ones, so
  /// what it wrote in one region it often finds in its own caches in the next.
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};  // the first index that is not taken
    int64_t end = 0;
  };

  using Function = void (*)(const void* context, int64_t begin, int64_t end, int worker);

  void run_region(int64_t count, bool wake, Function function, const void* context);
  void run_on_host();
  void take_part(int worker) noexcept;
  bool enter();
  void leave() { state_.fetch_sub(1, std::memory_order_release); }
  void close_region();
  void work(int worker) noexcept;
  void work_on(Share& share, int64_t pieces, int worker);
  void serve(int worker);
  uint32_t await_region(uint32_t seen);
  void start();
  void stop();

  ParallelFor host_;
  /// What `host_` is given. It outlives the region, so that a thread of the host program that calls
  /// it too late finds the region closed.
  ParallelTask host_task_;
  std::vector<std::atomic<bool>> begun_;  // by index: whether the host program has called it
  std::atomic<bool> is_wrong_{false};     // whether it called `wrong_`, which it must not
  std::atomic<int> wrong_{0};
  int threads_ = 1;
  std::vector<std::thread> workers_;

  // The region. Its leader writes it while the region is closed and no thread is in it.
  Function function_ = nullptr;
  const void* context_ = nullptr;
  std::exception_ptr error_;
  std::atomic<bool> failed_{false};

  std::vector<Share> shares_{1};  // by worker

  // On separate cache lines, because threads contend for these.
  alignas(64) std::atomic<uint32_t> state_{0};   // kOpen | number of workers inside
  alignas(64) std::atomic<uint32_t> region_{0};  // counts regions; workers wait for a change
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  ConditionVariable opened_;
};

}  // namespace braze
