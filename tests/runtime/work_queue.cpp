#include "runtime/execution/work_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <thread>

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
