// foreign.cpp — arrays over memory of others, DLPack, 16-bit elements, streams of a host device.
#include <dlpack/dlpack.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "braze/array.h"
#include "braze/dlpack.h"
#include "runtime/execution/stream.h"
#include "runtime/memory/array_state.h"
#include "tests/runtime/programs.h"

namespace braze::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

using Floats = std::vector<float>;

/// Memory of a host application that counts how often it was let go.
struct Owned {
  explicit Owned(size_t count, float first = 0) {
    data = static_cast<float*>(std::aligned_alloc(64, (count * sizeof(float) + 127) / 64 * 64));
    std::iota(data, data + count, first);
  }
  ~Owned() { std::free(data); }
  ForeignMemory memory(std::vector<int64_t> shape, std::vector<int64_t> strides = {}) {
    return {
        .data = data, .shape = std::move(shape), .strides = std::move(strides), .release = [this] {
          ++released;
        }};
  }

  float* data;
  std::atomic<int> released{0};
};

TEST(Borrowed, IsTheMemoryItselfUntilNobodyNeedsIt) {
  Owned owned(100);
  {
    const Array x = Array::borrow(owned.memory({10, 10}));
    EXPECT_EQ(x.data(), owned.data);
    EXPECT_EQ(x.shape(), (std::vector<int64_t>{10, 10}));
    const Array again = x;
    EXPECT_EQ(x.to_vector<float>()[99], 99);
    EXPECT_EQ(owned.released, 0);
  }
  EXPECT_EQ(owned.released, 1);
}

TEST(Borrowed, ACallKeepsIt) {
  Owned owned(1000);
  const Executable sum = add_program().load();
  Array z;
  {
    const Array x = Array::borrow(owned.memory({1000}));
    z = sum.run(std::vector{x, x})[0];
  }
  z.wait();
  EXPECT_EQ(z.to_vector<float>()[999], 1998);
  EXPECT_EQ(owned.released, 1);
}

TEST(Borrowed, StridedMemoryIsCopiedAndReleased) {
  Owned owned(12);
  testing::internal::CaptureStderr();
  const Array x = Array::borrow(owned.memory({4, 3}, {1, 4}));  // a transposed 3x4
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("f32[4, 3]"), HasSubstr("strided")));
  EXPECT_EQ(owned.released, 1);
  EXPECT_THAT(x.to_vector<float>(), ElementsAre(0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11));
  // Backwards, and one row for all.
  Owned other(4);
  ForeignMemory reversed = other.memory({4}, {-1});
  reversed.data = other.data + 3;
  testing::internal::CaptureStderr();
  EXPECT_THAT(Array::borrow(reversed).to_vector<float>(), ElementsAre(3, 2, 1, 0));
  EXPECT_THAT(Array::borrow(other.memory({2, 3}, {0, 1})).to_vector<float>(),
              ElementsAre(0, 1, 2, 0, 1, 2));
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(other.released, 2);
}

TEST(Borrowed, StridesOfDenseMemoryAreNoReasonToCopy) {
  Owned owned(12);
  // The stride of an axis of one element says nothing.
  const Array x = Array::borrow(owned.memory({3, 1, 4}, {4, 77, 1}));
  EXPECT_EQ(x.data(), owned.data);
  EXPECT_EQ(owned.released, 0);
}

TEST(Borrowed, UnalignedMemoryIsCopied) {
  Owned owned(8);
  ForeignMemory memory = owned.memory({4});
  memory.data = owned.data + 1;
  testing::internal::CaptureStderr();
  const Array x = Array::borrow(memory);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("aligned to 64"));
  EXPECT_THAT(x.to_vector<float>(), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(owned.released, 1);
}

TEST(Borrowed, ACopyIsRefusedWhereItMustNotBe) {
  Owned owned(12);
  ForeignMemory memory = owned.memory({4, 3}, {1, 4});
  memory.may_copy = false;
  EXPECT_THAT(error_of([&] { Array::borrow(memory); }),
              AllOf(StartsWith("foreign-memory"), HasSubstr("strided")));
  EXPECT_EQ(owned.released, 1);
}

TEST(Borrowed, WhatCannotBeIsRefusedAndReleased) {
  Owned owned(4);
  ForeignMemory null = owned.memory({4});
  null.data = nullptr;
  EXPECT_THAT(error_of([&] { Array::borrow(null); }),
              AllOf(StartsWith("foreign-memory"), HasSubstr("null")));
  EXPECT_THAT(error_of([&] {
                Array::borrow(owned.memory({4}, {1, 1}));
              }),
              AllOf(StartsWith("foreign-memory"), HasSubstr("2 strides")));
  EXPECT_THAT(error_of([&] { Array::borrow(owned.memory({-1})); }), StartsWith("negative-extent"));
  EXPECT_EQ(owned.released, 3);
  // Nothing may be anywhere.
  EXPECT_EQ(Array::borrow({.data = nullptr, .shape = {0, 3}}).numel(), 0);
}

TEST(Borrowed, StridesThatLeadNowhereAreRefused) {
  Owned owned(4);
  for (const int64_t stride : {INT64_MAX, INT64_MIN, int64_t{1} << 60, -(int64_t{1} << 50)})
    EXPECT_THAT(error_of([&] {
                  Array::borrow(owned.memory({3, 2}, {stride, 1}));
                }),
                AllOf(StartsWith("foreign-memory"), HasSubstr("beyond all addresses")));
  EXPECT_EQ(owned.released, 4);
  // That of an axis of one element says nothing, and that of an empty array neither.
  EXPECT_EQ(Array::borrow(owned.memory({1, 2}, {INT64_MAX, 1})).numel(), 2);
  EXPECT_EQ(Array::borrow(owned.memory({0, 2}, {INT64_MAX, 1})).numel(), 0);
}

TEST(Borrowed, AReleaseThatThrowsIsALineOfTheLog) {
  Owned owned(16);
  ForeignMemory memory = owned.memory({16});
  memory.release = [] { throw std::runtime_error("not now"); };
  testing::internal::CaptureStderr();
  EXPECT_EQ(Array::borrow(memory).numel(), 16);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("threw: not now"));
}

TEST(Borrowed, CannotBeDonated) {
  Owned owned(64);
  const Array p = Array::borrow(owned.memory({64})), g = filled(64, 1);
  EXPECT_THAT(error_of([&] {
                step_program().load().run(std::vector{p, g});
              }),
              AllOf(StartsWith("foreign-donated"), HasSubstr("\"p\"")));
  EXPECT_EQ(p.to_vector<float>()[1], 1) << "the argument is as it was";
}

TEST(Halves, GoInAndComeBack) {
  const std::vector<float> values = {0, 1, -2.5f, 65504, 1e-7f, INFINITY};
  std::vector<float16> f16;
  std::vector<bfloat16> bf16;
  for (const float v : values) {
    f16.emplace_back(v);
    bf16.emplace_back(v);
  }
  const Array a = Array::from(f16, {6}, "cpu"), b = Array::from(bf16, {6}, "cpu");
  EXPECT_EQ(a.dtype(), DType::F16);
  EXPECT_EQ(b.dtype(), DType::BF16);
  const auto a_back = a.to_vector<float16>();
  const auto b_back = b.to_vector<bfloat16>();
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(a_back[i].bits, f16[i].bits);
    EXPECT_EQ(b_back[i].bits, bf16[i].bits);
  }
  EXPECT_EQ(float(a_back[2]), -2.5f);
  EXPECT_EQ(float(a_back[3]), 65504);
  EXPECT_EQ(float16(1e9f).bits, 0x7c00) << "rounds to infinity";
  EXPECT_EQ(bfloat16(1.00390625f).bits, 0x3f80) << "a tie goes to even";
  EXPECT_EQ(float(bfloat16::from_bits(0x4049)), 3.140625f);
  EXPECT_THAT(error_of([&] { a.to_vector<bfloat16>(); }), StartsWith("array-type"));
}

// --- DLPack -------------------------------------------------------------------------------------

/// A tensor of another library.
template <class Managed>
struct Theirs {
  explicit Theirs(std::vector<int64_t> extents, std::vector<int64_t> steps = {})
      : owned(100), shape(std::move(extents)), strides(std::move(steps)) {
    tensor.dl_tensor = {owned.data,
                        {kDLCPU, 0},
                        static_cast<int32_t>(shape.size()),
                        {kDLFloat, 32, 1},
                        shape.data(),
                        strides.empty() ? nullptr : strides.data(),
                        0};
    tensor.manager_ctx = &owned;
    tensor.deleter = [](Managed* t) { ++static_cast<Owned*>(t->manager_ctx)->released; };
    if constexpr (std::is_same_v<Managed, DLManagedTensorVersioned>)
      tensor.version = {DLPACK_MAJOR_VERSION, 0};
  }
  Owned owned;
  std::vector<int64_t> shape, strides;
  Managed tensor{};
};

TEST(Dlpack, TensorsOfBothKindsComeInWithoutACopy) {
  const auto take = [](auto theirs) {
    {
      const Array x = from_dlpack(&theirs->tensor);
      EXPECT_EQ(x.data(), theirs->owned.data);
      EXPECT_EQ(x.dtype(), DType::F32);
      EXPECT_EQ(x.shape(), (std::vector<int64_t>{20, 5}));
      EXPECT_EQ(theirs->owned.released, 0);
    }
    EXPECT_EQ(theirs->owned.released, 1);
  };
  take(std::make_unique<Theirs<DLManagedTensor>>(std::vector<int64_t>{20, 5}));
  take(std::make_unique<Theirs<DLManagedTensorVersioned>>(std::vector<int64_t>{20, 5}));
}

TEST(Dlpack, OffsetsAndStridesAreObeyed) {
  Theirs<DLManagedTensorVersioned> theirs({2, 3}, {10, 2});
  theirs.tensor.dl_tensor.byte_offset = 64;
  testing::internal::CaptureStderr();
  EXPECT_THAT(from_dlpack(&theirs.tensor).to_vector<float>(), ElementsAre(16, 18, 20, 26, 28, 30));
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(theirs.owned.released, 1);
}

// One element that stands for 2^44 of them cannot be copied, and nobody runs out of memory over it.
TEST(Dlpack, WhatIsLargerThanMemoryIsAnError) {
  Theirs<DLManagedTensorVersioned> theirs({1 << 22, 1 << 22}, {0, 0});
  EXPECT_THAT(error_of([&] { from_dlpack(&theirs.tensor); }),
              AllOf(StartsWith("out-of-memory"), HasSubstr("f32[4194304, 4194304]")));
  EXPECT_EQ(theirs.owned.released, 1);
}

TEST(Dlpack, WhatIsUnknownIsRefusedAndReleased) {
  const auto refused = [](auto change) {
    Theirs<DLManagedTensorVersioned> theirs({4});
    change(theirs.tensor);
    const std::string error = error_of([&] { from_dlpack(&theirs.tensor); });
    EXPECT_EQ(theirs.owned.released, 1) << error;
    return error;
  };
  using Tensor = DLManagedTensorVersioned;
  EXPECT_THAT(refused([](Tensor& t) { t.version.major = 9; }),
              AllOf(StartsWith("dlpack"), HasSubstr("DLPack 9")));
  EXPECT_THAT(refused([](Tensor& t) {
                t.dl_tensor.dtype = {kDLComplex, 64, 1};
              }),
              StartsWith("dlpack"));
  EXPECT_THAT(refused([](Tensor& t) { t.dl_tensor.dtype.lanes = 4; }), HasSubstr("4 lanes"));
  EXPECT_THAT(refused([](Tensor& t) { t.dl_tensor.device.device_type = kDLMetal; }),
              HasSubstr("device"));
  EXPECT_THAT(refused([](Tensor& t) { t.dl_tensor.data = nullptr; }), StartsWith("foreign-memory"));
  EXPECT_THAT(refused([](Tensor& t) { t.dl_tensor.ndim = -1; }), HasSubstr("-1 axes cannot be"));
  EXPECT_THAT(refused([](Tensor& t) { t.dl_tensor.shape = nullptr; }), HasSubstr("has no shape"));
  EXPECT_THAT(refused([](Tensor& t) { t.dl_tensor.shape[0] = -4; }), StartsWith("negative-extent"));
  EXPECT_THAT(refused([](Tensor& t) { t.dl_tensor.shape[0] = INT64_MAX; }),
              HasSubstr("more bytes than can be addressed"));
}

TEST(Dlpack, ArraysGoOutWithoutACopyAndAreNotDonated) {
  Array p = filled(64, 3);
  const Array g = filled(64, 1);
  DLManagedTensorVersioned* const out = to_dlpack(p);
  EXPECT_EQ(out->dl_tensor.data, p.data());
  EXPECT_EQ(out->dl_tensor.device.device_type, kDLCPU);
  EXPECT_EQ(out->dl_tensor.ndim, 1);
  EXPECT_EQ(out->dl_tensor.shape[0], 64);
  EXPECT_EQ(out->dl_tensor.strides[0], 1);
  EXPECT_EQ(out->flags & DLPACK_FLAG_BITMASK_READ_ONLY, DLPACK_FLAG_BITMASK_READ_ONLY);
  const Executable step = step_program().load();
  EXPECT_THAT(error_of([&] {
                step.run(std::vector{p, g});
              }),
              AllOf(StartsWith("foreign-donated"), HasSubstr("was exported to another library")));
  out->deleter(out);
  EXPECT_EQ(step.run(std::vector{p, g})[0].to_vector<float>()[5], 4);
  EXPECT_THAT(error_of([&] { to_dlpack(p); }), StartsWith("donated-array"));
}

TEST(Dlpack, AnArrayIsExportedOrDonatedNeverBoth) {
  const Executable step = step_program().load();
  const Array g = filled(64, 1);
  int exported = 0, donated = 0;
  for (int round = 0; round < 500; ++round) {
    const Array p = filled(64, 3);
    std::atomic<int> ready{0};
    DLManagedTensorVersioned* out = nullptr;
    std::thread exporter([&] {
      ++ready;
      while (ready < 2) std::this_thread::yield();
      try {
        out = to_dlpack(p);
      } catch (const Error&) {
      }
    });
    ++ready;
    while (ready < 2) std::this_thread::yield();
    bool is_donated = true;
    try {
      step.run(std::vector{p, g})[0].wait();
    } catch (const Error&) {
      is_donated = false;
    }
    exporter.join();
    ASSERT_NE(out != nullptr, is_donated) << round;
    is_donated ? ++donated : ++exported;
    if (out) out->deleter(out);
  }
  EXPECT_EQ(exported + donated, 500);
}

TEST(Dlpack, EveryTypeComesBackAsItWent) {
  for (const DType dtype : kAllDTypes) {
    const std::vector<std::byte> bytes(24 * size_of(dtype), std::byte{1});
    const Array x = Array::from_bytes(bytes, dtype, {2, 3, 4}, "cpu");
    const Array y = from_dlpack(to_dlpack(x)), z = from_dlpack(to_dlpack_unversioned(x));
    EXPECT_EQ(y.dtype(), dtype);
    EXPECT_EQ(y.shape(), x.shape());
    EXPECT_EQ(y.data(), x.data());
    EXPECT_EQ(z.data(), x.data());
  }
  EXPECT_EQ(from_dlpack(to_dlpack(Array::from(Floats{7}, {}, "cpu"))).item(), 7);
}

TEST(Dlpack, ExtentsBesideAZeroMayHaveAnyProduct) {
  constexpr int64_t kLong = int64_t{1} << 40;
  const Array x = Array::from(Floats{}, {kLong, kLong, 0, kLong, kLong}, "cpu");
  EXPECT_EQ(from_dlpack(to_dlpack(x)).shape(), x.shape());
}

TEST(Dlpack, TheMemoryOutlivesTheArray) {
  DLManagedTensor* out = nullptr;
  {
    const Array x = filled(1000, 2);
    out = to_dlpack_unversioned(add_program().load().run(std::vector{x, x})[0]);
  }
  const Array other = filled(1000, 9);  // not in that memory
  EXPECT_EQ(static_cast<const float*>(out->dl_tensor.data)[999], 4) << "the value is there";
  out->deleter(out);
}

// --- Streams where there is one
// -------------------------------------------------------------------

TEST(HostStreams, AreOne) {
  const Stream a("cpu"), main = Stream::main("cpu");
  EXPECT_EQ(a.device(), Device("cpu"));
  EXPECT_EQ(a.native(), nullptr);
  const StreamGuard guard(a);
  const Array x = filled(1000, 1);
  const Array y = add_program().load().run(std::vector{x, x})[0];
  const Event event = main.record();
  event.wait();
  EXPECT_TRUE(event.done());
  EXPECT_EQ(event.native(), nullptr);
  a.synchronize();
  EXPECT_EQ(y.to_vector<float>()[0], 2);
  EXPECT_TRUE(Event().done());
  EXPECT_THAT(error_of([] { Stream::of_host("cpu", nullptr); }), StartsWith("no-native-streams"));
  EXPECT_THAT(error_of([&] { a.wait_native(nullptr); }), StartsWith("no-native-streams"));
}

TEST(HostStreams, AGuardThatEndsOnAnotherThreadIsALineOfTheLog) {
  auto guard = std::make_unique<StreamGuard>(Stream("cpu"));
  testing::internal::CaptureStderr();
  std::thread([&] { guard.reset(); }).join();
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("other than the one"));
  leave_stream();  // for the next tests
}

TEST(HostStreams, OneDeviceWaitsForAnother) {
  set_cpu_device_count(2);
  const Array x = filled(1000, 1), y = filled(1000, 1, "cpu:1");
  const Executable here = add_program().load("cpu"), there = add_program().load("cpu:1");
  const Array a = here.run(std::vector{x, x})[0];
  Stream::main("cpu:1").wait(Stream::main("cpu").record());
  const Array b = there.run(std::vector{y, y})[0];
  b.wait();
  EXPECT_TRUE(a.state()->ready->done());
  EXPECT_EQ(a.to_vector<float>()[0], 2);
  set_cpu_device_count(1);
}

TEST(PinnedMemory, OfAHostDeviceIsMemory) {
  const PinnedMemory in(64 * sizeof(float), "cpu"), out(64 * sizeof(float), "cpu");
  auto* const values = reinterpret_cast<float*>(in.bytes().data());
  std::iota(values, values + 64, 1.f);
  const Array x = Array::from_pinned(in, DType::F32, {64}, "cpu");
  values[0] = -1;
  x.copy_to_pinned(out).wait();
  EXPECT_EQ(reinterpret_cast<const float*>(out.bytes().data())[0], 1);
  EXPECT_EQ(reinterpret_cast<const float*>(out.bytes().data())[63], 64);
  EXPECT_THAT(error_of([&] { Array::from_pinned(in, DType::F32, {65}, "cpu"); }),
              StartsWith("array-type"));
  EXPECT_THAT(error_of([&] { filled(65, 0).copy_to_pinned(out); }), StartsWith("array-type"));
  EXPECT_TRUE(PinnedMemory(0, "cpu").bytes().empty());
}

}  // namespace
}  // namespace braze::test
