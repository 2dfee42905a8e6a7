// Many processes in one folder, some of which are killed in the middle of what they do.
//
// BRAZE_TEST_KILLS=10000 test-disk-cache --gtest_filter='*Killed*' is the long run; its results are
// in CACHE_RESULTS.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <new>
#include <random>
#include <thread>

#include "tests/runtime/cache_support.h"

namespace braze::test {
namespace {

namespace fs = std::filesystem;
using testing::SizeIs;

constexpr int kKeys = 24;

// Counters that all processes see.
struct Counts {
  std::atomic<uint64_t> hits, misses, faulty, wrong, stored;
};

class DiskCacheProcesses : public testing::Test {
 protected:
  void SetUp() override {
    void* const shared =
        mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(shared, MAP_FAILED);
    counts_ = new (shared) Counts{};
  }
  void TearDown() override { munmap(counts_, sizeof(Counts)); }

  CacheSettings settings(uint64_t max_bytes = uint64_t{1} << 30) const {
    return {CacheMode::On, temporary_.path / "cache", max_bytes};
  }

  /// Takes entries away and makes them again, for ever.
  [[noreturn]] void write_for_ever(unsigned seed) const {
    std::mt19937 random(seed);
    DiskCache cache(settings());
    for (;;) {
      const auto number = static_cast<int>(random() % kKeys);
      cache.remove(key_of(number));
      cache.store(key_of(number), payload_of(number));
      ++counts_->stored;
    }
  }

  void read(DiskCache& cache, int number) const {
    const auto found = cache.load(key_of(number));
    if (!found) {
      ++counts_->misses;
    } else if (*found == payload_of(number)) {
      ++counts_->hits;
    } else {
      ++counts_->wrong;
    }
  }

  [[noreturn]] void read_for_ever(unsigned seed) const {
    std::mt19937 random(seed);
    DiskCache cache(settings());
    for (uint64_t faulty = 0;;) {
      read(cache, static_cast<int>(random() % kKeys));
      const uint64_t now = cache.stats().faulty;
      counts_->faulty += now - std::exchange(faulty, now);
    }
  }

  TemporaryFolder temporary_;
  Counts* counts_ = nullptr;
};

int kills() {
  const char* const text = std::getenv("BRAZE_TEST_KILLS");
  return text ? std::atoi(text) : 300;
}

TEST_F(DiskCacheProcesses, KilledWritersLeaveNothingThatIsWrong) {
  constexpr int kWriters = 2, kReaders = 2;
  unsigned seed = 1;
  std::vector<pid_t> writers, readers;
  const auto start_writer = [&] { return start_process([&]() -> int { write_for_ever(seed); }); };
  for (int i = 0; i < kWriters; ++i, ++seed) writers.push_back(start_writer());
  for (int i = 0; i < kReaders; ++i, ++seed)
    readers.push_back(start_process([&]() -> int { read_for_ever(seed); }));

  std::mt19937 random(7);
  for (int kill_number = 0; kill_number < kills(); ++kill_number, ++seed) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 6000));
    pid_t& victim = writers[random() % kWriters];
    ASSERT_EQ(kill(victim, SIGKILL), 0);
    ASSERT_EQ(wait_for(victim), -SIGKILL) << "it should have been at work";
    victim = start_writer();
  }
  for (const std::vector<pid_t>& group : {writers, readers})
    for (const pid_t process : group) {
      kill(process, SIGKILL);
      EXPECT_EQ(wait_for(process), -SIGKILL);
    }

  // Whatever has a name is whole and right; what was begun is an orphan.
  const CacheFolder folder = CacheFolder::open(settings().folder, false);
  for (const CacheFolder::File& file : folder.entries())
    EXPECT_EQ(parse_entry(folder.read(file.name).bytes).fault, "") << file.name;
  const size_t orphans = folder.orphans(std::chrono::seconds(-60)).size();
  DiskCache cache(settings());
  for (int number = 0; number < kKeys; ++number) read(cache, number);
  EXPECT_EQ(cache.stats().faulty, 0u);
  EXPECT_EQ(counts_->wrong, 0u);
  EXPECT_EQ(counts_->faulty, 0u) << "readers saw entries that were not whole";
  EXPECT_GT(counts_->hits, 0u);
  EXPECT_GT(counts_->stored, 0u);
  std::printf("%d kills: %lu stored, %lu hits, %lu misses, %lu faulty, %lu wrong, %zu orphans\n",
              kills(), counts_->stored.load(), counts_->hits.load(), counts_->misses.load(),
              counts_->faulty.load(), counts_->wrong.load(), orphans);

  // An hour later a new writer clears them away.
  for (const CacheFolder::File& file : folder.orphans(std::chrono::seconds(-60)))
    fs::last_write_time(fs::path(settings().folder) / file.name,
                        fs::file_time_type::clock::now() - std::chrono::hours(2));
  cache.store(key_of(kKeys), payload_of(kKeys));
  EXPECT_THAT(folder.orphans(std::chrono::seconds(-60)), SizeIs(0));
}

TEST_F(DiskCacheProcesses, ManyPublishOneKey) {
  for (int round = 0; round < 20; ++round) {
    std::vector<pid_t> processes;
    for (int i = 0; i < 8; ++i)
      processes.push_back(start_process([&, round] {
        DiskCache cache(settings());
        cache.store(key_of(round), payload_of(round));
        return cache.load(key_of(round)) == payload_of(round) && cache.stats().unstored == 0 ? 0
                                                                                             : 1;
      }));
    for (const pid_t process : processes) EXPECT_EQ(wait_for(process), 0);
    EXPECT_THAT(names_in(settings().folder), SizeIs(round + 1));
  }
}

TEST_F(DiskCacheProcesses, ManyEvictAtOnce) {
  constexpr uint64_t kMost = 1'000'000;
  std::vector<pid_t> processes;
  for (int i = 0; i < 6; ++i)
    processes.push_back(start_process([&, i] {
      DiskCache cache(settings(kMost));
      for (int number = 0; number < 100; ++number) {
        cache.store(key_of(1000 * i + number), payload_of(number));
        read(cache, (number * 31 + i) % kKeys);
      }
      const DiskCache::Stats stats = cache.stats();
      return stats.faulty == 0 && stats.unstored == 0 && stats.evicted > 0 ? 0 : 1;
    }));
  for (const pid_t process : processes) EXPECT_EQ(wait_for(process), 0);
  EXPECT_EQ(counts_->wrong, 0u);
  DiskCache(settings(kMost)).store(key_of(9999), "the last one looks");
  uint64_t bytes = 0;
  for (const auto& file : fs::directory_iterator(settings().folder)) bytes += file.file_size();
  EXPECT_LE(bytes, kMost);
}

}  // namespace
}  // namespace braze::test
