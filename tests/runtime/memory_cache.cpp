#include "runtime/cache/memory_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "tests/runtime/programs.h"

namespace braze::test {
namespace {

using testing::HasSubstr;

TEST(MemoryCache, MakesOnce) {
  MemoryCache<Executable> cache(8);
  int made = 0;
  const auto make = [&] {
    ++made;
    return add_program().load();
  };
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(cache.get_or_make(hash128("a"), make).program().name, "sum");
  }
  EXPECT_EQ(made, 1);
  EXPECT_EQ(cache.stats().hits, 2u);
  EXPECT_EQ(cache.stats().misses, 1u);
  cache.clear();
  cache.get_or_make(hash128("a"), make);
  EXPECT_EQ(made, 2);
}

TEST(MemoryCache, ManyThreadsOneFlight) {
  MemoryCache<Executable> cache(8);
  std::atomic<int> made{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t) {
    threads.emplace_back([&] {
      for (int key = 0; key < 8; ++key) {
        const Executable e = cache.get_or_make(hash128(std::to_string(key)), [&] {
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

TEST(MemoryCache, TheLeastRecentlyUsedGoes) {
  MemoryCache<Executable> cache(2);
  std::string made;
  const auto get = [&](const char* key) {
    cache.get_or_make(hash128(key), [&] {
      made += key;
      return add_program().load();
    });
  };
  for (const char* key : {"a", "b", "a", "c", "a", "b"}) get(key);
  EXPECT_EQ(made, "abcb");
  EXPECT_EQ(cache.stats().evictions, 2u);
  EXPECT_EQ(cache.stats().size, 2u);
}

TEST(MemoryCache, ErrorsReachAllAndAreNotKept) {
  MemoryCache<Executable> cache(8);
  std::atomic<int> tried{0};
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      const std::string error = error_of([&] {
        cache.get_or_make(hash128("bad"), [&]() -> Executable {
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
  EXPECT_TRUE(cache.get_or_make(hash128("bad"), [] { return add_program().load(); }));
}

TEST(MemoryCache, DifferentKeysAreMadeAtTheSameTime) {
  MemoryCache<int> cache(8);
  // Neither is made before the other is being made. The deadline is for the failing test.
  std::atomic<int> begun = 0;
  std::vector<std::thread> threads;
  for (const char* key : {"a", "b"}) {
    threads.emplace_back([&, key] {
      cache.get_or_make(hash128(key), [&] {
        ++begun;
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
        while (begun < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
        EXPECT_EQ(begun, 2);
        return 1;
      });
    });
  }
  for (std::thread& t : threads) t.join();
}

TEST(MemoryCache, AfterOtherExceptionsOthersTryThemselves) {
  MemoryCache<int> cache(8);
  std::atomic<int> tried = 0, failed = 0, right = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      try {
        right += cache.get_or_make(hash128("key"), [&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          if (tried++ == 0) throw std::runtime_error("planted");
          return 1;
        });
      } catch (const std::runtime_error&) {
        ++failed;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(failed, 1);
  EXPECT_EQ(right, 7);
  EXPECT_EQ(cache.stats().made, 1u);
}

TEST(MemoryCache, FindsWhatWasUsedLast) {
  MemoryCache<int> cache(2);
  EXPECT_EQ(cache.last_used(), std::nullopt);
  for (int i : {1, 2, 3}) cache.get_or_make(hash128(std::to_string(i)), [i] { return i; });
  EXPECT_EQ(cache.find([](int) { return true; }), 3);
  EXPECT_EQ(cache.find([](int i) { return i < 3; }), 2);
  EXPECT_EQ(cache.find([](int i) { return i == 1; }), std::nullopt) << "evicted";
  EXPECT_EQ(cache.last_used(), 2);
}

TEST(MemoryCache, ClearLeavesWhatIsBeingMade) {
  MemoryCache<int> cache(2);
  EXPECT_EQ(cache.get_or_make(hash128("a"),
                              [&] {
                                cache.clear();
                                return 1;
                              }),
            1);
  EXPECT_EQ(cache.get_or_make(hash128("a"), [] { return 2; }), 2) << "of before the clear()";
  EXPECT_EQ(cache.stats().size, 1u);
}

}  // namespace
}  // namespace braze::test
