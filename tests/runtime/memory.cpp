#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <sstream>
#include <thread>

#include "braze/array.h"
#include "ir/values/host_tensor.h"
#include "runtime/memory/allocator.h"
#include "tests/runtime/programs.h"

namespace braze::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

struct HeapCount {
  int live = 0, total = 0;
};

/// Host memory that counts its blocks.
class CountingMemory : public HostMemory {
 public:
  explicit CountingMemory(HeapCount& count) : count_(count) {}
  std::byte* allocate(size_t size) override {
    ++count_.live;
    ++count_.total;
    return HostMemory::allocate(size);
  }
  void free(std::byte* data, size_t size) override {
    --count_.live;
    HostMemory::free(data, size);
  }

 private:
  HeapCount& count_;
};

Allocator make_allocator(HeapCount& count, std::optional<uint64_t> limit = {}) {
  return {"test", std::make_unique<CountingMemory>(count), [] {}, limit};
}

TEST(Allocator, ClassesWasteAtMostAnEighth) {
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
    ASSERT_EQ(Allocator::block_size(size), size);
  }
  EXPECT_EQ(Allocator::block_size(0), 0u);
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
  }
  EXPECT_EQ(heap.live, 0);
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
  EXPECT_EQ(heap.live, 2);
  allocator.empty_cache();
  EXPECT_EQ(allocator.stats().cached_bytes, 0u);
  EXPECT_EQ(allocator.stats().live_bytes, 1u << 20);
  EXPECT_EQ(heap.live, 1);
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
