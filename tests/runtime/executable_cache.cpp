#include "runtime/cache/executable_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/runtime/programs.h"

namespace braze::test {
namespace {

using testing::HasSubstr;

TEST(ExecutableCache, MakesOnce) {
  ExecutableCache cache;
  int made = 0;
  const auto make = [&] {
    ++made;
    return add_program().load();
  };
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(cache.get_or_load(hash128("a"), make).program().name, "sum");
  }
  EXPECT_EQ(made, 1);
  EXPECT_EQ(cache.stats().hits, 2u);
  EXPECT_EQ(cache.stats().misses, 1u);
  cache.clear();
  cache.get_or_load(hash128("a"), make);
  EXPECT_EQ(made, 2);
}

TEST(ExecutableCache, ManyThreadsOneFlight) {
  ExecutableCache cache;
  std::atomic<int> made{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t) {
    threads.emplace_back([&] {
      for (int key = 0; key < 8; ++key) {
        const Executable e = cache.get_or_load(hash128(std::to_string(key)), [&] {
          ++made;
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
          return add_program().load();
        });
        EXPECT_TRUE(e);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(made, 8);
  EXPECT_EQ(cache.stats().hits + cache.stats().misses, 16u * 8);
  EXPECT_EQ(cache.stats().misses, 8u);
}

TEST(ExecutableCache, TheLeastRecentlyUsedGoes) {
  ExecutableCache cache(2);
  std::string made;
  const auto get = [&](const char* key) {
    cache.get_or_load(hash128(key), [&] {
      made += key;
      return add_program().load();
    });
  };
  for (const char* key : {"a", "b", "a", "c", "a", "b"}) get(key);
  EXPECT_EQ(made, "abcb");
  EXPECT_EQ(cache.stats().evictions, 2u);
  EXPECT_EQ(cache.stats().size, 2u);
}

TEST(ExecutableCache, ErrorsReachAllAndAreNotKept) {
  ExecutableCache cache;
  std::atomic<int> tried{0};
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      const std::string error = error_of([&] {
        cache.get_or_load(hash128("bad"), [&]() -> Executable {
          ++tried;
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          fail(codes::kInternal, "planted");
        });
      });
      failed += error.find("planted") != std::string::npos;
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(failed, 8);
  EXPECT_GE(tried, 1);
  EXPECT_EQ(cache.stats().size, 0u);
  EXPECT_TRUE(cache.get_or_load(hash128("bad"), [] { return add_program().load(); }));
}

}  // namespace
}  // namespace braze::test
