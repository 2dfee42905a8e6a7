#include "runtime/mesh/crew.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

namespace braze {
namespace {

TEST(Crew, DoesEachPartInAThreadOfItsOwn) {
  Crew crew;
  crew.grow(4);
  for (const size_t parts : {4, 1, 3, 4}) {
    std::vector<std::thread::id> threads(parts);
    std::atomic<size_t> begun{0};
    crew.run(parts, [&](size_t part) {
      threads[part] = std::this_thread::get_id();
      for (++begun; begun < parts;) std::this_thread::yield();  // all are at work at the same time
    });
    EXPECT_EQ(threads[0], std::this_thread::get_id());
    EXPECT_EQ(std::set(threads.begin(), threads.end()).size(), parts);
  }
}

// Some calls come while the threads look out for them, and some when they sleep.
TEST(Crew, DoesEveryPartOnceAndAllOfThemBeforeItReturns) {
  Crew crew;
  std::vector<int> done(6);
  for (int call = 0; call < 2000; ++call) {
    const size_t parts = 1 + static_cast<size_t>(call) % done.size();
    crew.grow(parts);
    crew.run(parts, [&](size_t part) { ++done[part]; });
    for (size_t part = 0; part < parts; ++part) ++done[part];
    if (call % 100 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (size_t part = 0; part < done.size(); ++part) {
    int calls = 0;
    for (int call = 0; call < 2000; ++call) calls += static_cast<size_t>(call) % 6 >= part;
    EXPECT_EQ(done[part], 2 * calls);
  }
}

}  // namespace
}  // namespace braze
