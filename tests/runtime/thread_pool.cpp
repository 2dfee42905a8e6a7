#include "runtime/devices/cpu/thread_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "tests/runtime/programs.h"

namespace braze {
namespace {

using test::error_of;
using testing::AllOf;
using testing::HasSubstr;

TEST(ThreadPool, EveryIndexOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool;
    pool.set_threads(threads);
    for (const int64_t count : {0, 1, 2, 7, 64, 1000, 100'001}) {
      std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
      pool.run(count, true, [&](int64_t begin, int64_t end, int worker) {
        EXPECT_LT(worker, threads);
        for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
      });
      for (const auto& s : seen) ASSERT_EQ(s, 1);
    }
  }
}

TEST(ThreadPool, ManyShortRegions) {
  ThreadPool pool;
  pool.set_threads(4);
  std::vector<int64_t> sums(4 * 8);  // one line a worker
  int64_t expected = 0;
  for (int64_t region = 0; region < 20'000; ++region) {
    pool.run(16, region % 3 == 0, [&](int64_t begin, int64_t end, int worker) {
      for (int64_t i = begin; i < end; ++i) sums[static_cast<size_t>(worker) * 8] += i + region;
    });
    expected += 120 + 16 * region;
  }
  EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), int64_t{0}), expected);
}

TEST(ThreadPool, WakesSleepingWorkers) {
  ThreadPool pool;
  pool.set_threads(2);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::atomic<int> inside{0};
    // Each index waits for the other one: it takes two threads.
    pool.run(2, true, [&](int64_t, int64_t, int) {
      ++inside;
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (inside < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    });
    EXPECT_EQ(inside, 2);
  }
}

TEST(ThreadPool, ErrorsReachTheLeader) {
  ThreadPool pool;
  pool.set_threads(3);
  for (int round = 0; round < 100; ++round) {
    EXPECT_THROW(pool.run(100, true,
                          [](int64_t begin, int64_t end, int) {
                            if (begin <= 50 && 50 < end) throw std::runtime_error("planted");
                          }),
                 std::runtime_error);
    std::atomic<int64_t> count{0};
    pool.run(100, true, [&](int64_t begin, int64_t end, int) { count += end - begin; });
    EXPECT_EQ(count, 100);
  }
}

// The host program's loop gives parts to a thread and throws while one runs and another has not
// begun.
TEST(ThreadPool, AnExceptionOfTheHostWaitsForTheTasksThatHaveBegun) {
  ThreadPool pool;
  pool.set_threads(3);
  std::thread thread;
  std::atomic<bool> begun{false}, thrown{false}, is_late_over{false};
  bool throws = true;
  pool.set_host([&](int count, const ParallelTask& task) {
    if (!throws) {
      for (int i = 0; i < count; ++i) task(i);
      return;
    }
    thread = std::thread([&] {
      task(1);
      while (!thrown) std::this_thread::yield();
      task(2);
      is_late_over = true;
    });
    while (!begun) std::this_thread::yield();
    throw std::runtime_error("the pool is closed");
  });
  std::atomic<int> running{0};
  std::atomic<int64_t> done{0};
  const auto body = [&](int64_t begin, int64_t end, int) {
    ++running;
    begun = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    done += end - begin;
    --running;
    throw std::runtime_error("planted");
  };
  EXPECT_THAT(error_of([&] { pool.run(100, true, body); }),
              AllOf(HasSubstr("host program threw"), HasSubstr("the pool is closed")));
  EXPECT_EQ(running, 0) << "the region is over";
  const int64_t before = done;
  thrown = true;
  thread.join();
  EXPECT_TRUE(is_late_over);
  EXPECT_EQ(done, before) << "a task that begins later does nothing";

  throws = false;
  std::atomic<int64_t> count{0};
  pool.run(100, true, [&](int64_t begin, int64_t end, int) { count += end - begin; });
  EXPECT_EQ(count, 100) << "the error of the task is not one of the next region";
}

TEST(ThreadPool, SizeMayChange) {
  ThreadPool pool;
  for (const int threads : {4, 1, 2, 8, 2}) {
    pool.set_threads(threads);
    std::atomic<int64_t> count{0};
    pool.run(1000, true, [&](int64_t begin, int64_t end, int) { count += end - begin; });
    EXPECT_EQ(count, 1000);
  }
}

}  // namespace
}  // namespace braze
