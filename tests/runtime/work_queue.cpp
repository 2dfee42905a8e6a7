#include "runtime/execution/work_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <latch>
#include <thread>
#include <vector>

#include "runtime/memory/allocator.h"
#include "tests/runtime/programs.h"
#include "tests/runtime/watchdog.h"

namespace braze::test {
namespace {

/// Does what the test says.
class Task : public Work {
 public:
  explicit Task(std::function<void()> function) : function_(std::move(function)) {}

 protected:
  void execute() override { function_(); }

 private:
  const std::function<void()> function_;
};

std::shared_ptr<Task> task(std::function<void()> function) {
  return std::make_shared<Task>(std::move(function));
}

void nothing() {}

TEST(ImmediateStream, ASubmitterIsRelievedByTheNext) {
  const Watchdog watchdog("two threads that submit");
  constexpr int kMany = 1000;
  WorkQueue stream(WorkQueue::Mode::Immediate);
  std::latch begun(1);
  std::atomic<int> submitted{0}, by_first{0};
  std::thread::id first_id;
  std::thread first([&] {
    first_id = std::this_thread::get_id();
    const auto work = task([&] {
      begun.count_down();
      while (submitted == 0) std::this_thread::yield();
    });
    stream.submit(work, 0, nothing);
  });
  begun.wait();
  for (int i = 0; i < kMany; ++i) {
    // While the first thread does it, there is always more to do, unless it was the last.
    const auto work = task([&, i] {
      if (std::this_thread::get_id() != first_id) return;
      ++by_first;
      while (submitted < std::min(i + 2, kMany)) std::this_thread::yield();
    });
    stream.submit(work, 0, [&] { ++submitted; });
  }
  first.join();
  EXPECT_LE(by_first, 100);
  stream.drain();
}

TEST(ImmediateStream, WorkOfManyThreadsIsDoneWhenTheyHaveSubmittedIt) {
  const Watchdog watchdog("many threads that submit");
  WorkQueue stream(WorkQueue::Mode::Immediate);
  std::atomic<int> done{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2000; ++i) {
        const auto work = task([&] { ++done; });
        stream.submit(work, 0, nothing);
        if (i % 50 == t) stream.wait(*work);
        if (i % 300 == t) stream.drain();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done, 16'000);
}

TEST(Lanes, AreWorkedOnSideBySide) {
  const Watchdog watchdog("work of one lane that waits for that of another");
  WorkQueue queue(WorkQueue::Mode::Immediate);
  std::latch first_runs(1), second_ran(1);
  std::thread first([&] {
    const auto work = task([&] {
      first_runs.count_down();
      second_ran.wait();
    });
    queue.submit(work, 0, nothing, 1);
  });
  first_runs.wait();
  queue.submit(task([&] { second_ran.count_down(); }), 0, nothing, 2);
  first.join();
  queue.drain();
}

TEST(Lanes, EachKeepsItsOrderAndMayWaitForEarlierWorkOfOthers) {
  const Watchdog watchdog("lanes that wait for each other");
  constexpr uint32_t kLanes = 4;
  WorkQueue queue(WorkQueue::Mode::Immediate);
  std::vector<std::shared_ptr<Task>> submitted;
  std::array<int, kLanes> next{};  // submission
  std::array<int, kLanes> done{};  // of a lane, only ever changed there
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 2 * kLanes; ++t) {
    threads.emplace_back([&, lane = t % kLanes, t] {
      for (int i = 0; i < 1000; ++i) {
        std::shared_ptr<Task> before;
        int place = 0;
        const auto work = task([&, lane] {
          if (before) queue.wait(*before);
          wrong += done[lane]++ != place;
        });
        const auto admit = [&] {
          if (!submitted.empty()) before = submitted[static_cast<size_t>(i) % submitted.size()];
          if (submitted.size() < 64)
            submitted.push_back(work);
          else
            submitted[static_cast<size_t>(t * 7 + static_cast<uint32_t>(i)) % 64] = work;
          place = next[lane]++;
        };
        queue.submit(work, 0, admit, lane);
        queue.wait(*work);
        if (i % 100 == 0) queue.drain();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Lanes, DrainIsBehindAllOfThem) {
  const Watchdog watchdog("a drain");
  WorkQueue queue(WorkQueue::Mode::Immediate);
  std::latch begun(3);
  std::atomic<bool> go{false};
  std::atomic<int> done{0};
  std::vector<std::thread> threads;
  for (uint32_t lane = 0; lane < 3; ++lane) {
    threads.emplace_back([&, lane] {
      const auto work = task([&] {
        begun.count_down();
        while (!go) std::this_thread::yield();
        ++done;
      });
      queue.submit(work, 0, nothing, lane);
    });
  }
  begun.wait();
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    go = true;
  });
  queue.drain();
  EXPECT_EQ(done, 3);
  for (std::thread& thread : threads) thread.join();
  later.join();
}

TEST(Lanes, AnErrorOfAnyIsReportedOnce) {
  WorkQueue queue(WorkQueue::Mode::Immediate);
  queue.submit(task([] { fail(codes::kOutOfMemory, "planted"); }), 0, nothing, 7);
  EXPECT_THAT(error_of([&] { queue.synchronize(); }), testing::HasSubstr("planted"));
  queue.synchronize();
}

TEST(ImmediateStream, ARefusedSubmissionChangesNothing) {
  WorkQueue stream(WorkQueue::Mode::Immediate);
  bool done = false;
  EXPECT_THAT(error_of([&] {
                stream.submit(task([&] { done = true; }), 0,
                              [] { fail(codes::kOutOfMemory, "planted"); });
              }),
              testing::HasSubstr("planted"));
  stream.drain();
  EXPECT_FALSE(done);
}

}  // namespace
}  // namespace braze::test
