#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <latch>
#include <random>
#include <sstream>
#include <thread>

#include "braze/array.h"
#include "ir/values/host_tensor.h"
#include "runtime/memory/allocator.h"
#include "tests/runtime/programs.h"
#include "tests/runtime/watchdog.h"

namespace braze::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

constexpr uint64_t kMiB = 1 << 20;

struct HeapCount {
  std::atomic<int> total{0};  // calls that took memory
  std::atomic<uint64_t> bytes{0}, most_bytes{0};
  uint64_t capacity = UINT64_MAX;
  bool frees_parts = true;
};

/// Host memory that counts what was taken.
class CountingMemory : public HostMemory {
 public:
  explicit CountingMemory(HeapCount& count) : count_(count) {}
  std::byte* allocate(size_t size) override {
    ++count_.total;
    if (count_.bytes + size > count_.capacity) return nullptr;
    const uint64_t bytes = count_.bytes += size;
    uint64_t most = count_.most_bytes;
    while (bytes > most && !count_.most_bytes.compare_exchange_weak(most, bytes)) {
    }
    return HostMemory::allocate(size);
  }
  void free(std::byte* data, size_t size) noexcept override {
    HostMemory::free(data, size);
    count_.bytes -= size;
  }
  bool frees_parts() const override { return count_.frees_parts; }

 private:
  HeapCount& count_;
};

Allocator make_allocator(HeapCount& count, std::optional<uint64_t> limit = {}) {
  return {"test", std::make_unique<CountingMemory>(count), [] {}, limit};
}

TEST(Allocator, SizesWasteAtMostAnEighthAndTwoMiB) {
  std::mt19937_64 random(1);
  uint64_t previous = 0;
  for (uint64_t bytes = 1; bytes < 70'000; ++bytes) {
    const uint64_t size = Allocator::block_size(bytes);
    ASSERT_GE(size, bytes);
    ASSERT_GE(size, previous);
    ASSERT_EQ(size % 64, 0u);
    ASSERT_EQ(Allocator::block_size(size), size);
    if (bytes > 1024) {
      ASSERT_LE(size - bytes, bytes / 8);
    }
    previous = size;
  }
  for (int i = 0; i < 100'000; ++i) {
    const uint64_t bytes = 1025 + random() % (uint64_t{1} << (11 + random() % 50));
    const uint64_t size = Allocator::block_size(bytes);
    ASSERT_GE(size, bytes);
    ASSERT_LE(size - bytes, bytes / 8);
    ASSERT_LT(size - bytes, 2 * kMiB);
    ASSERT_EQ(Allocator::block_size(size), size);
  }
  EXPECT_EQ(Allocator::block_size(0), 0u);
  EXPECT_EQ(Allocator::block_size(uint64_t{33} << 30), uint64_t{33} << 30);
  EXPECT_EQ(Allocator::block_size(64 << 20), 64u << 20) << "powers of two fit exactly";
}

TEST(Allocator, ReusesWhatWasFreed) {
  HeapCount heap;
  {
    Allocator allocator = make_allocator(heap);
    std::byte* first = nullptr;
    {
      const Buffer a = allocator.allocate(5000, nullptr);
      first = a.data();
    }
    const Buffer b = allocator.allocate(5001, nullptr);
    EXPECT_EQ(b.data(), first);
    EXPECT_EQ(heap.total, 1);
    const MemoryStats stats = allocator.stats();
    EXPECT_EQ(stats.allocations, 2u);
    EXPECT_EQ(stats.cache_hits, 1u);
    EXPECT_EQ(stats.live_bytes, 5120u);
    EXPECT_EQ(stats.cached_bytes, 0u);
    EXPECT_EQ(stats.peak_bytes, 5120u);
    EXPECT_EQ(allocator.allocate(0, nullptr).data(), nullptr);
    allocator.allocate(10'000, nullptr);
    const Buffer little = allocator.allocate(64, nullptr);
    EXPECT_EQ(allocator.stats().peak_bytes, 5120u + 10'240u) << "when most was live";
  }
  EXPECT_EQ(heap.bytes, 0u);
}

TEST(Allocator, LargeBlocksAreCutAndBecomeOneAgain) {
  for (const bool frees_parts : {false, true}) {
    HeapCount heap;
    heap.frees_parts = frees_parts;
    Allocator allocator = make_allocator(heap);
    std::byte* const whole = allocator.allocate(33 * kMiB, nullptr).data();
    // In every order of going.
    for (const auto& order : {std::array{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {0, 2, 1}}) {
      std::array<Buffer, 3> parts;
      for (Buffer& part : parts) part = allocator.allocate(10 * kMiB, nullptr);
      for (const Buffer& part : parts) {
        EXPECT_GE(part.data(), whole);
        EXPECT_LE(part.data() + 10 * kMiB, whole + 34 * kMiB);
        std::fill_n(part.data(), 10 * kMiB, std::byte{1});
      }
      EXPECT_EQ(allocator.stats().live_bytes, 30 * kMiB);
      EXPECT_EQ(allocator.stats().cached_bytes, 4 * kMiB);
      for (const int i : order) parts[static_cast<size_t>(i)] = Buffer();
      EXPECT_EQ(allocator.allocate(34 * kMiB, nullptr).data(), whole) << "one block again";
    }
    EXPECT_EQ(heap.total, 1);
    EXPECT_EQ(allocator.stats().cache_hits, 16u);
  }
}

TEST(Allocator, TheBestFitIsCut) {
  HeapCount heap;
  Allocator allocator = make_allocator(heap);
  std::vector<Buffer> blocks, between;
  for (const uint64_t size : {40, 12, 20}) {
    blocks.push_back(allocator.allocate(size * kMiB, nullptr));
    between.push_back(allocator.allocate(kMiB, nullptr));
  }
  std::byte* const best = blocks[1].data();
  blocks.clear();
  EXPECT_EQ(allocator.allocate(11 * kMiB, nullptr).data(), best);
}

TEST(Allocator, SmallBlocksDoNotHoldLargeOnes) {
  HeapCount heap;
  Allocator allocator = make_allocator(heap);
  { const Buffer large = allocator.allocate(4 * kMiB, nullptr); }
  // Leaves a rest of half a MiB.
  const Buffer most = allocator.allocate(7 * kMiB / 2, nullptr);
  EXPECT_EQ(allocator.stats().cached_bytes, kMiB / 2);
  const Buffer small = allocator.allocate(kMiB / 2, nullptr);
  EXPECT_EQ(heap.total, 2);
}

TEST(Allocator, FreePartsGoBackOneByOneWhereTheyCan) {
  for (const bool frees_parts : {false, true}) {
    HeapCount heap;
    heap.frees_parts = frees_parts;
    Allocator allocator = make_allocator(heap, 40 * kMiB);
    { const Buffer whole = allocator.allocate(32 * kMiB, nullptr); }
    Buffer first = allocator.allocate(8 * kMiB, nullptr);
    const Buffer second = allocator.allocate(8 * kMiB, nullptr);
    std::fill_n(second.data(), 8 * kMiB, std::byte{7});
    first = Buffer();
    allocator.empty_cache();
    EXPECT_EQ(allocator.stats().live_bytes, 8 * kMiB);
    EXPECT_EQ(allocator.stats().cached_bytes, frees_parts ? 0 : 24 * kMiB);
    EXPECT_EQ(heap.bytes, frees_parts ? 8 * kMiB : 32 * kMiB);
    const std::string error = error_of([&] { allocator.allocate(32 * kMiB, nullptr); });
    if (frees_parts) {
      EXPECT_EQ(error, "");
    } else {
      EXPECT_THAT(error, HasSubstr("8.0 MiB are live of the 40.0 MiB allowed, 24.0 MiB are free in "
                                   "pieces between them"));
    }
    EXPECT_EQ(second.data()[0], std::byte{7});
    EXPECT_EQ(second.data()[8 * kMiB - 1], std::byte{7});
  }
}

TEST(Allocator, TheCacheOfHostMemoryIsBounded) {
  HeapCount heap;
  Allocator allocator = make_allocator(heap);
  // Each size once, so that nothing serves another, in the order in which they grow.
  for (uint64_t size = 100; size < 200; size += 2) allocator.allocate(size * kMiB, nullptr);
  EXPECT_LE(allocator.stats().cached_bytes, 198 * kMiB * 5 / 4 + 64 * kMiB);
  EXPECT_LE(heap.most_bytes, 198 * kMiB * 5 / 4 + 64 * kMiB);
  EXPECT_EQ(heap.bytes, allocator.stats().cached_bytes);

  // What is in use at once again and again is kept.
  const auto step = [&] {
    std::vector<Buffer> in_use;
    for (const uint64_t size : {30, 50, 70}) in_use.push_back(allocator.allocate(size * kMiB, {}));
    in_use.erase(in_use.begin());
    in_use.push_back(allocator.allocate(20 * kMiB, {}));
  };
  for (int i = 0; i < 10; ++i) step();
  const int total = heap.total;
  for (int i = 0; i < 100; ++i) step();
  EXPECT_EQ(heap.total, total);

  // And what has not been needed for long goes back.
  for (int i = 0; i < 10'000; ++i) allocator.allocate(kMiB, nullptr);
  EXPECT_LE(allocator.stats().cached_bytes, 66 * kMiB);
  EXPECT_EQ(heap.bytes, allocator.stats().cached_bytes);
}

TEST(Allocator, TheCacheOfADeviceIsNotBounded) {
  HeapCount heap;
  heap.frees_parts = false;
  Allocator allocator = make_allocator(heap);
  for (uint64_t size = 20; size < 70; ++size) allocator.allocate(size * kMiB, nullptr);
  for (int i = 0; i < 10'000; ++i) allocator.allocate(kMiB, nullptr);
  EXPECT_GT(allocator.stats().cached_bytes, 1000 * kMiB);
}

TEST(Allocator, EveryBlockIsWritableAndAligned) {
  HeapCount heap;
  Allocator allocator = make_allocator(heap);
  for (const size_t bytes : {size_t{1}, size_t{64}, size_t{65'000}, size_t{66'000}, size_t{3} << 20,
                             (size_t{8} << 20) + 1}) {
    const Buffer buffer = allocator.allocate(bytes, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
    std::fill_n(buffer.data(), Allocator::block_size(bytes), std::byte{1});
  }
}

TEST(Allocator, EmptyCacheReturnsMemory) {
  HeapCount heap;
  Allocator allocator = make_allocator(heap);
  const Buffer kept = allocator.allocate(1 << 20, nullptr);
  { const Buffer freed = allocator.allocate(3 << 20, nullptr); }
  EXPECT_EQ(allocator.stats().cached_bytes, 3u << 20);
  EXPECT_EQ(heap.bytes, 4 * kMiB);
  allocator.empty_cache();
  EXPECT_EQ(allocator.stats().cached_bytes, 0u);
  EXPECT_EQ(allocator.stats().live_bytes, 1u << 20);
  EXPECT_EQ(heap.bytes, kMiB);
}

TEST(Allocator, WhatIsCachedCountsForTheLimit) {
  HeapCount heap;
  Allocator allocator = make_allocator(heap, 4 << 20);
  { const Buffer freed = allocator.allocate(3 << 20, nullptr); }
  const Buffer other = allocator.allocate(4 << 20, nullptr);
  EXPECT_EQ(heap.most_bytes, 4 * kMiB) << "what was kept for reuse is given back first";
  EXPECT_EQ(allocator.stats().cached_bytes, 0u);
}

TEST(Allocator, ShortageEmptiesTheCacheAndThenTellsWhatIsLive) {
  HeapCount heap;
  int drained = 0;
  Buffer pending;
  Allocator allocator(
      "test", std::make_unique<CountingMemory>(heap),
      [&] {
        ++drained;
        pending = {};
        const Buffer gone = std::move(pending);
      },
      10 << 20);
  const auto label = [](const char* text) { return std::make_shared<const std::string>(text); };
  const Buffer big = allocator.allocate(4 << 20, label("weights"));
  const Buffer small = allocator.allocate(1 << 20, label("bias"));
  { const Buffer cached = allocator.allocate(3 << 20, nullptr); }
  const Buffer fits = allocator.allocate(5 << 20, label("activations"));
  EXPECT_EQ(drained, 0) << "the cache was enough";
  const std::string error = error_of([&] { allocator.allocate(2 << 20, label("gradient")); });
  EXPECT_EQ(drained, 1);
  EXPECT_THAT(error, AllOf(StartsWith("out-of-memory"),
                           HasSubstr("test has no 2.0 MiB for gradient: 10.0 MiB are live of the "
                                     "10.0 MiB allowed"),
                           HasSubstr("5.0 MiB  activations\n"), HasSubstr("4.0 MiB  weights\n"),
                           HasSubstr("1.0 MiB  bias")));
  EXPECT_LT(error.find("activations"), error.find("weights"));
  EXPECT_THAT(error_of([&] { allocator.allocate(SIZE_MAX, nullptr); }),
              StartsWith("out-of-memory"));
}

TEST(Allocator, WhatIsCachedGoesBackWhereTheSourceHasNoMore) {
  HeapCount heap;
  heap.capacity = 10 * kMiB;
  int drained = 0;
  Allocator allocator("test", std::make_unique<CountingMemory>(heap), [&] { ++drained; }, {});
  allocator.allocate(6 * kMiB, nullptr);
  EXPECT_EQ(allocator.stats().cached_bytes, 6 * kMiB);
  EXPECT_NE(allocator.allocate(8 * kMiB, nullptr).data(), nullptr);
  EXPECT_EQ(drained, 0) << "work was awaited, which holds nothing";
  EXPECT_THAT(error_of([&] { allocator.allocate(11 * kMiB, nullptr); }),
              StartsWith("out-of-memory"));
  EXPECT_EQ(drained, 1);
}

TEST(Allocator, ManyThreads) {
  HeapCount heap;
  Allocator allocator = make_allocator(heap);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      std::vector<Buffer> buffers(16);
      for (int i = 0; i < 5000; ++i) {
        Buffer fresh = allocator.allocate(1 + random() % 5000, nullptr);
        *fresh.data() = std::byte{1};
        buffers[random() % buffers.size()] = std::move(fresh);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(allocator.stats().live_bytes, 0u);
  EXPECT_EQ(allocator.stats().allocations, 40'000u);
}

/// Host memory whose next call, to take or to free, goes on only when it is let.
class SlowMemory : public HostMemory {
 public:
  struct Gate {
    std::atomic<bool> is_next{false};
    std::latch entered{1}, open{1};
    bool fails = false;
  };
  explicit SlowMemory(Gate& gate) : gate_(gate) {}
  std::byte* allocate(size_t size) override {
    return pass() && gate_.fails ? nullptr : HostMemory::allocate(size);
  }
  void free(std::byte* data, size_t size) noexcept override {
    pass();
    HostMemory::free(data, size);
  }

 private:
  bool pass() {
    if (!gate_.is_next.exchange(false)) return false;
    gate_.entered.count_down();
    gate_.open.wait();
    return true;
  }

  Gate& gate_;
};

TEST(Allocator, OtherThreadsGoOnDuringACallOfTheSource) {
  const Watchdog watchdog("a thread beside one that takes or frees memory");
  for (const bool frees : {false, true}) {
    SlowMemory::Gate gate;
    Allocator allocator("test", std::make_unique<SlowMemory>(gate), [] {}, {});
    { const Buffer a = allocator.allocate(5000, nullptr), b = allocator.allocate(3 * kMiB, {}); }
    std::optional<Buffer> held = allocator.allocate(300, nullptr);
    gate.is_next = true;
    std::thread slow([&] {
      if (frees)
        allocator.empty_cache();
      else
        allocator.allocate(6 * kMiB, nullptr);
    });
    gate.entered.wait();
    held.reset();
    { const Buffer reused = allocator.allocate(300, nullptr); }
    { const Buffer fresh = allocator.allocate(700, nullptr); }
    EXPECT_EQ(allocator.stats().live_bytes, 0u);
    gate.open.count_down();
    slow.join();
  }
}

TEST(Allocator, ALimitHoldsDuringACallOfTheSource) {
  const Watchdog watchdog("two threads that need the memory below a limit");
  for (const bool fails : {false, true}) {
    SlowMemory::Gate gate;
    gate.fails = fails;
    Allocator allocator(
        "test", std::make_unique<SlowMemory>(gate), [] {}, 10 * kMiB);
    gate.is_next = true;
    Buffer first, second;
    std::string first_error, second_error;
    std::thread one(
        [&] { first_error = error_of([&] { first = allocator.allocate(6 * kMiB, nullptr); }); });
    gate.entered.wait();
    std::thread other(
        [&] { second_error = error_of([&] { second = allocator.allocate(6 * kMiB, nullptr); }); });
    gate.open.count_down();
    one.join();
    other.join();
    // One of them has it; where the source failed once, it is tried again.
    EXPECT_NE(first.data() == nullptr, second.data() == nullptr);
    EXPECT_THAT(first_error + second_error, StartsWith("out-of-memory"));
    EXPECT_EQ(allocator.stats().live_bytes, 6 * kMiB);
  }
}

TEST(Allocator, ManyThreadsKeepWithinALimit) {
  const Watchdog watchdog("many threads at a limit");
  HeapCount heap;
  constexpr uint64_t kLimit = 24 * kMiB;
  Allocator allocator = make_allocator(heap, kLimit);
  std::atomic<int> served{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < 2000; ++i) {
        // Three at most, of at most 2 MiB each: no request of 4 threads may fail.
        std::array<Buffer, 3> buffers;
        for (Buffer& buffer : buffers) {
          if (random() % 4 == 0) continue;
          buffer = allocator.allocate(1 + random() % (2 * kMiB), nullptr);
          *buffer.data() = std::byte{1};
          ++served;
        }
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_LE(heap.most_bytes, kLimit);
  EXPECT_EQ(allocator.stats().allocations, static_cast<uint64_t>(served));
  EXPECT_EQ(allocator.stats().live_bytes, 0u);
  EXPECT_EQ(heap.bytes, allocator.stats().cached_bytes);
  // All of it, in one piece.
  EXPECT_NE(allocator.allocate(kLimit, nullptr).data(), nullptr);
}

TEST(Allocator, ALowerLimitHoldsForWhatIsCachedToo) {
  HeapCount heap;
  Allocator allocator = make_allocator(heap);
  const Buffer kept = allocator.allocate(2 * kMiB, nullptr);
  { const Buffer cached = allocator.allocate(4 * kMiB, nullptr); }
  allocator.set_limit(5 * kMiB);
  EXPECT_THAT(error_of([&] { allocator.allocate(4 * kMiB, nullptr); }),
              StartsWith("out-of-memory"));
  EXPECT_NE(allocator.allocate(3 * kMiB, nullptr).data(), nullptr);
}

TEST(Array, FromAndTo) {
  const Array a = Array::from(std::vector<int64_t>{1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(a.dtype(), DType::I64);
  EXPECT_THAT(a.shape(), ElementsAre(2, 3));
  EXPECT_EQ(a.numel(), 6);
  EXPECT_EQ(a.size_bytes(), 48u);
  EXPECT_EQ(a.device(), Device("cpu"));
  EXPECT_THAT(a.to_vector<int64_t>(), ElementsAre(1, 2, 3, 4, 5, 6));
  const Array b = a.to("interpreter");
  EXPECT_EQ(b.device().name(), "interpreter");
  EXPECT_TRUE(identical(b.to_host(), a.to_host()));
  EXPECT_EQ(a.to("cpu").state(), a.state());
  HostTensor flags(DType::Bool, {3});
  flags.set_int(1, 1);
  EXPECT_THAT(Array::from_host(flags).to_vector<bool>(), ElementsAre(false, true, false));
}

// What is true in C and NumPy by another byte than 1 is 1 from here on, on every device.
TEST(Array, BoolsAreMadeOfAnyBytes) {
  const std::vector<uint8_t> bytes = {0, 1, 2, 128, 255};
  HostTensor host(DType::Bool, {5});
  std::memcpy(host.data(), bytes.data(), bytes.size());
  for (const char* device : {"cpu", "interpreter", "sim:cpu"})
    for (const Array& a :
         {Array::from_bytes(std::as_bytes(std::span(bytes)), DType::Bool, {5}, device),
          Array::from_host(host, device), Array::from_host(host).to(device)}) {
      std::vector<uint8_t> out(5);
      a.copy_to_host(std::as_writable_bytes(std::span(out)));
      EXPECT_THAT(out, ElementsAre(0, 1, 1, 1, 1)) << device;
    }
  EXPECT_THAT(bytes, ElementsAre(0, 1, 2, 128, 255)) << "the caller's bytes are the caller's";
}

TEST(Array, ScalarsAndEmptyOnes) {
  EXPECT_EQ(Array::from(std::vector<float>{2.5f}, {}).item(), 2.5);
  EXPECT_EQ(Array::from(std::vector<int32_t>{-7}, {1, 1}).item(), -7);
  const Array none = Array::from(std::vector<float>{}, {3, 0});
  EXPECT_EQ(none.numel(), 0);
  EXPECT_TRUE(none.to_vector<float>().empty());
  EXPECT_EQ(none.to("interpreter").numel(), 0);
}

TEST(Array, MisuseIsAnError) {
  EXPECT_THAT(error_of([] { Array().item(); }), StartsWith("empty-array"));
  EXPECT_THAT(error_of([] {
                Array::from(std::vector<float>{1, 2}, {3});
              }),
              AllOf(StartsWith("array-type"), HasSubstr("2 elements of f32"), HasSubstr("f32[3]")));
  const std::byte three[3] = {};
  EXPECT_THAT(error_of([&] { Array::from_bytes(three, DType::F32, {1}); }),
              HasSubstr("3 bytes were given for an array of f32[1], which has 4 bytes"));
  const Array a = Array::from(std::vector<float>{1, 2}, {2});
  EXPECT_THAT(error_of([&] { a.to_vector<double>(); }),
              AllOf(StartsWith("array-type"), HasSubstr("f32[2], not f64")));
  EXPECT_THAT(error_of([&] { a.item(); }), HasSubstr("one element"));
  std::byte few[3];
  EXPECT_THAT(error_of([&] { a.copy_to_host(few); }), HasSubstr("3 bytes"));
  EXPECT_THAT(error_of([] { Array::from(std::vector<float>{}, {-1}); }),
              HasSubstr("the shape [-1] has a negative extent"));
  EXPECT_THAT(error_of([] {
                Array::from(std::vector<float>{}, {INT64_MAX, INT64_MAX});
              }),
              HasSubstr("more than 2^63 elements"));
  EXPECT_THAT(error_of([] { Array::from(std::vector<float>{}, {INT64_MAX / 2}); }),
              HasSubstr("0 elements of f32 were given for an array of f32[4611686018427387903]"));
}

std::string text(const Array& array) {
  std::ostringstream out;
  out << array;
  return out.str();
}

TEST(Array, Prints) {
  EXPECT_THAT(text(Array::from(std::vector<float>{}, {int64_t{1} << 40, 0})),
              StartsWith("[[],\n []"));
  EXPECT_EQ(text(Array::from(std::vector<float>{1, 2.5f, -3, 100}, {2, 2})),
            "[[  1, 2.5],\n"
            " [ -3, 100]] f32[2, 2] on cpu");
  EXPECT_EQ(text(Array::from(std::vector<int32_t>{1, 2, 3, 4}, {2, 1, 2})),
            "[[[1, 2]],\n\n"
            " [[3, 4]]] i32[2, 1, 2] on cpu");
  EXPECT_EQ(text(Array::from(std::vector<double>{0.1}, {})), "0.1 f64[] on cpu");
  EXPECT_EQ(text(Array::from(std::vector<float>{}, {2, 0})), "[[],\n []] f32[2, 0] on cpu");
  HostTensor flags(DType::Bool, {2});
  flags.set_int(1, 1);
  EXPECT_EQ(text(Array::from_host(flags)), "[false,  true] bool[2] on cpu");
  std::vector<int64_t> many(2000);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<int64_t>(i);
  EXPECT_EQ(text(Array::from(many, {2000})),
            "[   0,    1,    2, ..., 1997, 1998, 1999] i64[2000] on cpu");
  EXPECT_EQ(text(Array::from(many, {1000, 2})),
            "[[   0,    1],\n [   2,    3],\n [   4,    5],\n ...,\n [1994, 1995],\n"
            " [1996, 1997],\n [1998, 1999]] i64[1000, 2] on cpu");
  EXPECT_EQ(text(Array::from(std::vector<float>{std::numeric_limits<float>::quiet_NaN(),
                                                -std::numeric_limits<float>::infinity()},
                             {2})),
            "[ nan, -inf] f32[2] on cpu");
}

TEST(Array, StatisticsOfTheDevice) {
  synchronize("cpu");
  empty_cache("cpu");
  const MemoryStats before = memory_stats("cpu");
  {
    const Array a = filled(1 << 20, 1);
    EXPECT_EQ(memory_stats("cpu").live_bytes - before.live_bytes, 4u << 20);
  }
  EXPECT_EQ(memory_stats("cpu").live_bytes, before.live_bytes);
  EXPECT_EQ(memory_stats("cpu").cached_bytes, 4u << 20);
  empty_cache("cpu");
  EXPECT_EQ(memory_stats("cpu").cached_bytes, 0u);
}

}  // namespace
}  // namespace braze::test
