// stream_test.cpp — several streams of a GPU, streams and memory of others, pinned memory.
#include <dlpack/dlpack.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <future>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "braze/dlpack.h"
#include "runtime/devices/cuda/driver_api.h"
#include "runtime/memory/array_state.h"
#include "tests/runtime/cuda/cuda_test.h"
#include "tests/runtime/watchdog.h"

namespace braze::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::SizeIs;
using testing::StartsWith;

constexpr int64_t kN = 1 << 18;

/// What a host application does with the driver by itself.
class Host {
 public:
  explicit Host(int device = 0) : api_(*CudaSystem::get().api()) {
    EXPECT_EQ(api_.device_primary_ctx_retain(&context_, device), cuda::CUDA_SUCCESS);
    EXPECT_EQ(api_.ctx_push_current(context_), cuda::CUDA_SUCCESS);
    EXPECT_EQ(api_.stream_create(&stream_, cuda::CU_STREAM_NON_BLOCKING), cuda::CUDA_SUCCESS);
  }
  ~Host() {
    api_.stream_synchronize(stream_);
    api_.stream_destroy(stream_);
    for (const cuda::CUdeviceptr block : blocks_) api_.mem_free(block);
    cuda::CUcontext ours = nullptr;
    api_.ctx_pop_current(&ours);
  }
  cuda::CUstream stream() const { return stream_; }
  const cuda::Api& api() const { return api_; }

  /// Memory that holds another value once the stream has come to it: `of`'s.
  float* memory(int64_t n, const Array& of) {
    cuda::CUdeviceptr block = 0;
    EXPECT_EQ(api_.mem_alloc(&block, static_cast<size_t>(n) * 4 + 64), cuda::CUDA_SUCCESS);
    blocks_.push_back(block);
    const auto from = reinterpret_cast<uintptr_t>(of.data());
    EXPECT_EQ(api_.memset_d8_async(block, 0, static_cast<size_t>(n) * 4, stream_),
              cuda::CUDA_SUCCESS);
    EXPECT_EQ(api_.memcpy_d_to_d_async(block, from, static_cast<size_t>(n) * 4, stream_),
              cuda::CUDA_SUCCESS);
    return reinterpret_cast<float*>(static_cast<uintptr_t>(block));
  }

 private:
  const cuda::Api& api_;
  cuda::CUcontext context_ = nullptr;
  cuda::CUstream stream_ = nullptr;
  std::vector<cuda::CUdeviceptr> blocks_;
};

TEST_F(Cuda, CallsInTwoStreamsDoNotWaitForEachOther) {
  const Executable sum = gpu_add_program().load(gpu_);
  const Stream a(gpu_), b(gpu_);
  EXPECT_NE(a.native(), b.native());
  const Array x = filled(kN, 1, gpu_);
  x.wait();
  const auto call = [&](const Stream& stream, float y) {
    const StreamGuard guard(stream);
    return sum.run(std::vector{x, filled(kN, y, gpu_)})[0];  // also what is copied in goes there
  };
  const Array in_a = call(a, 2), in_b = call(b, 3);
  if (fake_cuda()) {
    EXPECT_THAT(fake_cuda()->executed, SizeIs(0));
  }
  b.synchronize();
  if (fake_cuda()) {
    EXPECT_THAT(fake_cuda()->executed, SizeIs(1)) << "the other one";
  }
  EXPECT_THAT(in_b.to_vector<float>(), Each(4));
  EXPECT_THAT(in_a.to_vector<float>(), Each(3));
}

TEST_F(Cuda, ArraysCrossStreams) {
  const Executable sum = gpu_add_program().load(gpu_), sixteen = sixteen_program(gpu_);
  const Stream a(gpu_), b(gpu_);
  for (int round = 0; round < 20; ++round) {  // calls are recorded meanwhile
    Array x = filled(kN, 1, gpu_), y, z;
    {
      const StreamGuard guard(a);
      y = sixteen.run(std::vector{x})[0];
    }
    {
      const StreamGuard guard(b);
      z = sum.run(std::vector{x, y})[0];
    }
    z = sum.run(std::vector{z, y})[0];
    ASSERT_THAT(z.to_vector<float>(), Each(33)) << round;
  }
}

TEST_F(Cuda, MemoryIsReusedBehindTheStreamsThatReadIt) {
  const Executable sum = gpu_add_program().load(gpu_);
  const Stream side(gpu_);
  for (int round = 0; round < 5; ++round) {
    Array x = filled(kN, 1, gpu_), y;
    const void* const where = x.data();
    {
      const StreamGuard guard(side);
      y = sum.run(std::vector{x, x})[0];
    }
    x = {};
    const Array next = filled(kN, 5, gpu_);
    EXPECT_EQ(next.data(), where) << "else nothing is tested";
    next.to_vector<float>();
    ASSERT_THAT(y.to_vector<float>(), Each(2));
  }
}

TEST_F(Cuda, DonatedMemoryIsOverwrittenBehindTheStreamsThatReadIt) {
  const Executable sum = gpu_add_program().load(gpu_);
  GpuMaker m("step");
  const Expr n = symbol_n();
  const uint32_t p = m.input("p", vector_type(n)), g = m.input("g", vector_type(n));
  m.add(p, g, m.output("p_next", vector_type(n), 0), n);
  const Executable step = m.load(gpu_);
  const Stream a(gpu_), b(gpu_);
  Array weights = filled(kN, 1, gpu_);
  const Array one = filled(kN, 1, gpu_);
  std::vector<Array> read;
  for (int round = 0; round < 6; ++round) {
    {
      const StreamGuard guard(a);
      read.push_back(sum.run(std::vector{weights, one})[0]);
    }
    const StreamGuard guard(round % 2 ? b : Stream::main(gpu_));
    weights = step.run(std::vector{weights, one})[0];
  }
  EXPECT_THAT(weights.to_vector<float>(), Each(7));
  for (size_t i = 0; i < read.size(); ++i)
    EXPECT_THAT(read[i].to_vector<float>(), Each(static_cast<float>(i) + 2)) << i;
}

TEST_F(Cuda, RunsOnAStreamOfTheHostApplication) {
  Host host;
  const Executable sum = gpu_add_program().load(gpu_);
  const Array two = filled(kN, 2, gpu_);
  Array y;
  std::promise<void> released;
  {
    const Stream theirs = Stream::of_host(gpu_, host.stream());
    EXPECT_EQ(theirs.native(), host.stream());
    EXPECT_EQ(Stream::of_host(gpu_, host.stream()).stream(), theirs.stream());
    two.wait();
    float* const memory = host.memory(kN, two);
    const StreamGuard guard(theirs);
    const Array x = Array::borrow(
        {.data = memory, .shape = {kN}, .device = gpu_, .release = [&] { released.set_value(); }});
    EXPECT_EQ(x.data(), memory);
    y = sum.run(std::vector{x, x})[0];
  }
  released.get_future().get();
  if (fake_cuda()) {
    EXPECT_THAT(fake_cuda()->executed, SizeIs(1)) << "it was released too early";
  }
  EXPECT_THAT(y.to_vector<float>(), Each(4));
}

TEST_F(Cuda, MainStreamWaitsForBorrowedMemory) {
  Host host;
  const Executable sum = gpu_add_program().load(gpu_);
  const Array two = filled(kN, 2, gpu_);
  const Stream theirs = Stream::of_host(gpu_, host.stream());
  theirs.wait(Stream::main(gpu_).record());
  Array x;
  {
    const StreamGuard guard(theirs);
    x = Array::borrow({.data = host.memory(kN, two), .shape = {kN}, .device = gpu_});
  }
  EXPECT_THAT(sum.run(std::vector{x, x})[0].to_vector<float>(), Each(4));
}

TEST_F(Cuda, UnalignedForeignMemoryIsCopied) {
  Host host;
  const Array two = filled(kN, 2, gpu_);
  const Stream theirs = Stream::of_host(gpu_, host.stream());
  theirs.wait(Stream::main(gpu_).record());
  float* const memory = host.memory(kN, two);
  const StreamGuard guard(theirs);
  testing::internal::CaptureStderr();
  const Array x = Array::borrow({.data = memory + 1, .shape = {kN - 1}, .device = gpu_});
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("aligned"));
  EXPECT_NE(x.data(), memory + 1);
  EXPECT_THAT(x.to_vector<float>(), Each(2));
  std::vector<float> on_host(64);
  EXPECT_THAT(
      error_of([&] { Array::borrow({.data = on_host.data(), .shape = {4}, .device = gpu_}); }),
      AllOf(StartsWith("foreign-memory"), HasSubstr("cuda:0")));
}

TEST_F(Cuda, StridedForeignMemoryIsCopiedInItsStream) {
  Host host;
  constexpr int64_t kCount = 4096;
  std::vector<float> numbers(kCount);
  std::iota(numbers.begin(), numbers.end(), 0.f);
  const Array source = Array::from(numbers, {kCount}, gpu_);
  const Stream theirs = Stream::of_host(gpu_, host.stream());
  theirs.wait(Stream::main(gpu_).record());
  float* const memory = host.memory(kCount, source);
  const StreamGuard guard(theirs);
  struct Case {
    std::vector<int64_t> shape, strides;
    int64_t first = 0;
  };
  const std::vector<Case> cases = {
      {{16, 8}, {1, 16}},              // transposed
      {{4, 5, 8}, {40, 8, 1}},         // dense, though strides are given
      {{4, 3, 8}, {40, 8, 1}, 8},      // a slice
      {{2, 8, 3, 4}, {96, 4, 32, 1}},  // heads before rows
      {{3, 5, 7}, {1, 3, 15}},         // all axes the other way around
      {{6}, {-2}, 10},                 // backwards
      {{3, 4}, {0, 1}},                // one row for all
      {{5}, {0}, 7},                   // one element for all
      {{2, 1, 3}, {1, 99, 2}},         // the stride of one element says nothing
      {{4, 4}, {3, 1}},                // rows that overlap
  };
  for (const Case& c : cases) {
    std::atomic<int> released{0};
    testing::internal::CaptureStderr();
    Array x = Array::borrow({.data = memory + c.first,
                             .shape = c.shape,
                             .strides = c.strides,
                             .device = gpu_,
                             .release = [&released] { ++released; }});
    std::vector<float> expected;
    std::vector<int64_t> at(c.shape.size(), 0);
    const auto count = static_cast<size_t>(x.numel());
    while (expected.size() < count) {
      int64_t place = c.first;
      for (size_t i = 0; i < at.size(); ++i) place += at[i] * c.strides[i];
      expected.push_back(static_cast<float>(place));
      for (size_t i = at.size(); i-- > 0 && ++at[i] == c.shape[i];) at[i] = 0;
    }
    EXPECT_EQ(x.to_vector<float>(), expected) << testing::PrintToString(c.strides);
    const std::string log = testing::internal::GetCapturedStderr();
    if (x.data() != memory) {
      EXPECT_THAT(log, HasSubstr("strided"));
    }
    x = {};
    while (released == 0) std::this_thread::yield();
    EXPECT_EQ(released, 1);
  }
}

TEST_F(Cuda, StridedForeignMemoryIsRefusedWhereItCannotBeCopied) {
  Host host;
  const Array source = filled(kN, 1, gpu_);
  const Stream theirs = Stream::of_host(gpu_, host.stream());
  theirs.wait(Stream::main(gpu_).record());
  float* const memory = host.memory(kN, source);
  const StreamGuard guard(theirs);
  const auto refusal = [&](std::vector<int64_t> shape, std::vector<int64_t> strides,
                           bool may_copy = true) {
    int released = 0;
    const std::string error = error_of([&] {
      Array::borrow({.data = memory,
                     .shape = std::move(shape),
                     .strides = std::move(strides),
                     .device = gpu_,
                     .release = [&released] { ++released; },
                     .may_copy = may_copy});
    });
    EXPECT_EQ(released, 1) << error;
    return error;
  };
  constexpr int64_t kFar = int64_t{1} << 36;
  EXPECT_THAT(refusal({2, 2}, {1, 2}, false),
              AllOf(StartsWith("foreign-memory"), HasSubstr("strided")));
  EXPECT_THAT(refusal({2, 4}, {kFar, 1}), HasSubstr("not in the memory")) << "its last row";
  EXPECT_THAT(refusal({4}, {-kFar}), HasSubstr("not in the memory")) << "its last element";
  EXPECT_THAT(refusal({4, 4}, {INT64_MAX, 1}), HasSubstr("beyond all addresses"));
  // Axes of which none continues another.
  std::vector<int64_t> twos(17, 2), strides(17);
  for (size_t i = 0; i < strides.size(); ++i) strides[i] = i % 2 ? int64_t{1} << (i / 2) : 3;
  EXPECT_THAT(refusal(twos, strides), AllOf(HasSubstr("along 17 axes"), HasSubstr("contiguous")));
}

// Copies whose units are of every size, and more units than threads of the launch.
TEST_F(Cuda, StridedForeignMemoryOfEveryUnitIsCopied) {
  Host host;
  // One more turn of every thread; the fake driver takes its time for each unit.
  const int64_t rows = fake_cuda() ? 64 : 3001, columns = fake_cuda() ? 100 : 4000;
  const int64_t count = rows * columns;
  const Array source = Array::from(counting(count), {count}, gpu_);
  const Stream theirs = Stream::of_host(gpu_, host.stream());
  theirs.wait(Stream::main(gpu_).record());
  float* const memory = host.memory(count, source);
  const StreamGuard guard(theirs);
  std::vector<std::byte> bytes(static_cast<size_t>(count) * 4);
  source.copy_to_host(bytes);
  const auto expect_transposed = [&](DType dtype, int64_t first) {
    const auto size = static_cast<int64_t>(size_of(dtype));
    // The rest of a row that does not begin at its first byte.
    const int64_t width = 4 * columns / size - first;
    const Array x = Array::borrow({.data = reinterpret_cast<std::byte*>(memory) + first * size,
                                   .dtype = dtype,
                                   .shape = {width, rows},
                                   .strides = {1, 4 * columns / size},
                                   .device = gpu_});
    std::vector<std::byte> got(x.size_bytes());
    x.copy_to_host(got);
    int64_t wrong = 0;
    for (int64_t i = 0; i < width; ++i) {
      for (int64_t j = 0; j < rows; ++j) {
        const std::byte* const a = got.data() + (i * rows + j) * size;
        const std::byte* const b = bytes.data() + j * 4 * columns + (i + first) * size;
        wrong += std::memcmp(a, b, static_cast<size_t>(size)) != 0;
      }
    }
    EXPECT_EQ(wrong, 0) << name(dtype) << ' ' << first;
  };
  for (const DType dtype : {DType::I8, DType::F16, DType::F32, DType::F64})
    for (const int64_t first : {0, 1, 3}) expect_transposed(dtype, first);
  // 16 bytes at a time: heads before rows.
  const int64_t heads = columns / 20;
  const Array x = Array::borrow(
      {.data = memory, .shape = {heads, rows, 20}, .strides = {20, columns, 1}, .device = gpu_});
  const Floats got = x.to_vector<float>();
  int64_t wrong = 0;
  for (int64_t i = 0; i < heads * rows * 20; ++i) {
    const int64_t h = i / (rows * 20), r = i / 20 % rows, c = i % 20;
    wrong += got[static_cast<size_t>(i)] != static_cast<float>(r * columns + h * 20 + c);
  }
  EXPECT_EQ(wrong, 0);
  if (fake_cuda()) {
    const auto ran = [](std::string_view name) {
      return std::ranges::count(fake_cuda()->executed, name);
    };
    for (const char* name : {"strided_copy_1", "strided_copy_2", "strided_copy_4", "strided_copy_8",
                             "strided_copy_16"})
      EXPECT_GE(ran(name), 1) << name;
  }
}

// Numbers of units that 32 bits do not hold.
TEST_F(Cuda, StridedForeignMemoryOfManyGigabytesIsCopied) {
  if (fake_cuda()) GTEST_SKIP() << "a copy of 4 GiB, for GPUs";
  constexpr int64_t kRows = (1 << 20) + 1, kColumns = 4096;
  Host host;
  const Array source = Array::from(counting(kColumns), {kColumns}, gpu_);
  const Stream theirs = Stream::of_host(gpu_, host.stream());
  theirs.wait(Stream::main(gpu_).record());
  float* const memory = host.memory(kColumns, source);
  const StreamGuard guard(theirs);
  Array x;
  try {
    x = Array::borrow({.data = memory,
                       .dtype = DType::I8,
                       .shape = {kRows, kColumns},
                       .strides = {0, 3},
                       .device = gpu_});
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::ResourceExhausted) throw;
    GTEST_SKIP() << "less than 4 GiB of memory are free";
  }
  const std::vector<int8_t> got = x.to_vector<int8_t>();
  std::vector<std::byte> bytes(kColumns * 4);
  source.copy_to_host(bytes);
  int64_t wrong = 0;
  for (const int64_t row : {int64_t{0}, kRows / 2, kRows - 2, kRows - 1})
    for (int64_t c = 0; c < kColumns; ++c)
      wrong += got[static_cast<size_t>(row * kColumns + c)] !=
               static_cast<int8_t>(bytes[static_cast<size_t>(3 * c)]);
  EXPECT_EQ(wrong, 0);
}

// A bool of another library may be any byte: all but 0 are true wherever they are read.
TEST_F(Cuda, ForeignBoolsOfAnyBytesAreTrue) {
  Host host;
  std::vector<std::byte> bytes = {std::byte{0}, std::byte{1},   std::byte{2},   std::byte{0},
                                  std::byte{4}, std::byte{255}, std::byte{128}, std::byte{0}};
  const Array source = Array::from_bytes(bytes, DType::U8, {8}, gpu_);
  const Stream theirs = Stream::of_host(gpu_, host.stream());
  theirs.wait(Stream::main(gpu_).record());
  // `memory` copies floats: 8 bytes.
  float* const memory = host.memory(2, source);
  const StreamGuard guard(theirs);
  const Array x =
      Array::borrow({.data = memory, .dtype = DType::Bool, .shape = {8}, .device = gpu_});
  EXPECT_EQ(x.to_vector<bool>(), (std::vector<bool>{0, 1, 1, 0, 1, 1, 1, 0}));
  std::vector<std::byte> got(8);
  x.copy_to_host(got);
  for (size_t i = 0; i < bytes.size(); ++i)
    EXPECT_EQ(got[i], bytes[i] == std::byte{0} ? std::byte{0} : std::byte{1}) << i;
  EXPECT_EQ(x.to(Device("cpu")).to_host().get_double(5), 1);
  const PinnedMemory pinned(8, gpu_);
  x.copy_to_pinned(pinned).wait();
  EXPECT_EQ(Array::from_pinned(pinned, DType::Bool, {8}, Device("cpu")).to_host().get_double(5), 1);
}

TEST_F(Cuda, WaitsForEventsOfOthersAndHandsOutItsOwn) {
  Host host;
  const Executable sum = gpu_add_program().load(gpu_);
  const Array two = filled(kN, 2, gpu_);
  cuda::CUevent event = nullptr;
  ASSERT_EQ(host.api().event_create(&event, cuda::CU_EVENT_DISABLE_TIMING), cuda::CUDA_SUCCESS);
  // Ours behind theirs.
  two.wait();
  float* const memory = host.memory(kN, two);
  ASSERT_EQ(host.api().event_record(event, host.stream()), cuda::CUDA_SUCCESS);
  Stream::main(gpu_).wait_native(event);
  const Array x = Array::borrow({.data = memory, .shape = {kN}, .device = gpu_});
  const Array y = sum.run(std::vector{x, x})[0];
  // Theirs behind ours.
  const Event made = Stream::main(gpu_).record();
  ASSERT_NE(made.native(), nullptr);
  ASSERT_EQ(
      host.api().stream_wait_event(host.stream(), static_cast<cuda::CUevent>(made.native()), 0),
      cuda::CUDA_SUCCESS);
  const PinnedMemory out(kN * 4, gpu_);
  ASSERT_EQ(host.api().memcpy_d_to_h_async(
                out.bytes().data(), reinterpret_cast<uintptr_t>(y.data()), kN * 4, host.stream()),
            cuda::CUDA_SUCCESS);
  ASSERT_EQ(host.api().stream_synchronize(host.stream()), cuda::CUDA_SUCCESS);
  EXPECT_TRUE(made.done());
  EXPECT_EQ(reinterpret_cast<const float*>(out.bytes().data())[kN - 1], 4);
  host.api().event_destroy(event);
}

TEST_F(Cuda, LentMemoryIsReusedBehindItsReceiver) {
  Host host;
  const Stream theirs = Stream::of_host(gpu_, host.stream());
  Array x = filled(kN, 3, gpu_);
  const PinnedMemory out(kN * 4, gpu_);
  DLManagedTensorVersioned* tensor = nullptr;
  const void* const where = x.data();
  {
    const StreamGuard guard(theirs);
    tensor = to_dlpack(x);
  }
  x = {};
  host.api().memcpy_d_to_h_async(out.bytes().data(), reinterpret_cast<uintptr_t>(where), kN * 4,
                                 host.stream());
  tensor->deleter(tensor);
  const Array next = filled(kN, 9, gpu_);
  EXPECT_EQ(next.data(), where) << "else nothing is tested";
  next.to_vector<float>();
  ASSERT_EQ(host.api().stream_synchronize(host.stream()), cuda::CUDA_SUCCESS);
  EXPECT_EQ(reinterpret_cast<const float*>(out.bytes().data())[kN - 1], 3);
}

TEST_F(Cuda, PinnedMemoryIsCopiedWithoutTheHost) {
  const Executable sum = gpu_add_program().load(gpu_);
  const Stream side(gpu_);
  for (const bool beside : {false, true}) {
    const StreamGuard guard(beside ? side : Stream::main(gpu_));
    PinnedMemory in(kN * 4, gpu_);
    const PinnedMemory out(kN * 4, gpu_);
    std::fill_n(reinterpret_cast<float*>(in.bytes().data()), kN, 3.f);
    Event copied;
    {
      const Array x = Array::from_pinned(in, DType::F32, {kN}, gpu_);
      in = PinnedMemory(4, gpu_);  // it stays until the copy is complete
      const Array y = sum.run(std::vector{x, x})[0];
      copied = y.copy_to_pinned(out);
    }
    if (fake_cuda()) {
      EXPECT_FALSE(copied.done());
    }
    const Array next = filled(kN, 8, gpu_);  // in the memory of y perhaps
    next.to_vector<float>();
    copied.wait();
    EXPECT_TRUE(copied.done());
    const std::span out_floats(reinterpret_cast<const float*>(out.bytes().data()), kN);
    EXPECT_THAT(out_floats, Each(6));
  }
}

TEST_F(Cuda, ACallThatFailsMidwayKeepsWhatItUsesUntilItsLaunchesAreDone) {
  if (!fake_cuda()) GTEST_SKIP() << "only the fake driver fails when it is told to";
  const Executable sixteen = sixteen_program(gpu_);
  const Stream side(gpu_);
  Array x = filled(kN, 1, gpu_);
  const void* const where = x.data();
  fake_cuda()->failures["cuLaunchKernelEx"] = {
      .after = 2, .result = cuda::CUDA_ERROR_INVALID_VALUE, .times = 1};
  {
    const StreamGuard guard(side);
    const Array y = sixteen.run(std::vector{x})[0];
    EXPECT_THAT(error_of([&] { y.wait(); }), StartsWith("cuda-failed"));
  }
  x = {};
  EXPECT_THAT(fake_cuda()->executed, SizeIs(0));
  const Array next = filled(kN, 5, gpu_);
  EXPECT_EQ(next.data(), where) << "else nothing is tested";
  EXPECT_THAT(next.to_vector<float>(), Each(5));
  EXPECT_THAT(fake_cuda()->executed, SizeIs(2)) << "they read the memory before";
  EXPECT_THAT(error_of([&] { synchronize(gpu_); }), StartsWith("cuda-failed")) << "once";
}

TEST_F(Cuda, AStreamThatIsGoneLeavesItsMemory) {
  empty_cache(gpu_);
  const Executable sum = gpu_add_program().load(gpu_);
  const Array x = filled(kN, 1, gpu_);
  const void* where = nullptr;
  {
    const Stream side(gpu_);
    const StreamGuard guard(side);
    const Array y = sum.run(std::vector{x, x})[0];
    where = y.data();
  }
  const Array next = sum.run(std::vector{x, x})[0];
  EXPECT_EQ(next.data(), where);
  EXPECT_THAT(next.to_vector<float>(), Each(2));
}

TEST_F(Cuda, AStreamThatIsGoneIsWaitedForWhereItsMemoryIsReused) {
  empty_cache(gpu_);
  const Executable sum = gpu_add_program().load(gpu_);
  Array x = filled(kN, 1, gpu_);
  const std::byte* where = nullptr;
  {
    const StreamGuard guard{Stream(gpu_)};
    where = sum.run(std::vector{x, x})[0].state()->data;
  }
  const Array next = filled(kN, 9, gpu_);
  EXPECT_EQ(next.state()->data, where) << "else nothing is tested";
  EXPECT_THAT(next.to_vector<float>(), Each(9));
  x = {};
  synchronize(gpu_);
  EXPECT_THAT(next.to_vector<float>(), Each(9)) << "the call was late";
}

TEST_F(Cuda, ManyThreadsHaveStreamsOfTheirOwn) {
  const Executable sixteen = sixteen_program(gpu_);
  const Array x = filled(kN, 1, gpu_);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const Stream mine(gpu_);
      const StreamGuard guard(mine);
      Array y = x;
      for (int i = 0; i < 20; ++i) y = sixteen.run(std::vector{i % 5 ? y : x})[0];
      wrong += y.to_vector<float>()[static_cast<size_t>(t)] != 16.f * 16 * 16 * 16 * 16;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

/// Lets the first launch of each of two threads wait in the driver for the other's.
std::atomic<int> launching{0};
void meet_at_launch() {
  thread_local bool met = false;
  if (std::exchange(met, true)) return;
  ++launching;
  while (launching < 2) std::this_thread::yield();
}

TEST_F(Cuda, ThreadsSubmitToTheirStreamsAtTheSameTime) {
  if (!fake_cuda()) GTEST_SKIP() << "only the fake driver lets launches wait for each other";
  const Watchdog watchdog("two threads that submit to two streams");
  const Executable one = gpu_add_program().load(gpu_), other = gpu_add_program().load(gpu_);
  const Array x = filled(kN, 1, gpu_);
  launching = 0;
  fake_cuda()->at_launch = meet_at_launch;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (const Executable* const sum : {&one, &other}) {
    threads.emplace_back([&, sum] {
      const StreamGuard guard{Stream(gpu_)};
      wrong += sum->run(std::vector{x, x})[0].to_vector<float>()[0] != 2;
    });
  }
  for (std::thread& thread : threads) thread.join();
  fake_cuda()->at_launch = nullptr;
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(launching, 2);
}

TEST_F(Cuda, CallsOfManyThreadsAreRightAndCounted) {
  const Watchdog watchdog("threads that call");
  constexpr int64_t kSmall = 1 << 10;
  constexpr int kCalls = 2000;
  const Array one = filled(kSmall, 1, gpu_);
  one.wait();
  for (const int count : {1, 2, 4}) {
    std::vector<Executable> sums;
    for (int t = 0; t < count; ++t) sums.push_back(gpu_add_program().load(gpu_));
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    const auto begin = std::chrono::steady_clock::now();
    for (int t = 0; t < count; ++t) {
      threads.emplace_back([&, t] {
        const StreamGuard guard{Stream(gpu_)};
        Array y = one;
        for (int i = 0; i < kCalls; ++i)
          y = sums[static_cast<size_t>(t)].run(std::vector{i % 100 ? y : one, one})[0];
        wrong += y.to_vector<float>() != std::vector<float>(kSmall, (kCalls - 1) % 100 + 2);
      });
    }
    for (std::thread& thread : threads) thread.join();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    EXPECT_EQ(wrong, 0);
    std::printf("%d threads with streams of their own: %.0f calls a second\n", count,
                count * kCalls / taken.count());
  }
}

/// Keeps the first launch of all in the driver until it is let go.
std::atomic<bool> is_held{false}, may_go{false};
void hold_the_first() {
  if (is_held.exchange(true)) return;
  while (!may_go) std::this_thread::yield();
}

TEST_F(Cuda, WhatIsReadByACallStillToBeSubmittedIsNotOverwritten) {
  if (!fake_cuda()) GTEST_SKIP() << "only the fake driver holds a launch back";
  const Watchdog watchdog("a call that overwrites what another reads");
  const Executable sum = gpu_add_program().load(gpu_);
  GpuMaker m("step");
  const Expr n = symbol_n();
  const uint32_t p = m.input("p", vector_type(n)), g = m.input("g", vector_type(n));
  m.add(p, g, m.output("p_next", vector_type(n), 0), n);
  const Executable step = m.load(gpu_);
  const Array weights = filled(kN, 1, gpu_), one = filled(kN, 1, gpu_);
  weights.wait();
  is_held = may_go = false;
  fake_cuda()->at_launch = hold_the_first;
  Array read, next;
  std::thread reader([&] {
    const StreamGuard guard{Stream(gpu_)};
    read = sum.run(std::vector{weights, one})[0];
  });
  while (!is_held) std::this_thread::yield();
  std::thread writer([&] {
    const StreamGuard guard{Stream(gpu_)};
    next = step.run(std::vector{weights, one})[0];
    EXPECT_THAT(next.to_vector<float>(), Each(2));
  });
  // The writer has been admitted when the argument is dead, and waits from then on.
  while (!weights.state()->donated.load()) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  may_go = true;
  reader.join();
  writer.join();
  fake_cuda()->at_launch = nullptr;
  EXPECT_THAT(read.to_vector<float>(), Each(2)) << "it was overwritten";
}

TEST_F(Cuda, ThreadsThatReadAndOverwriteInManyStreamsGetWhatOneWould) {
  const Watchdog watchdog("threads that share arrays");
  const Executable sum = gpu_add_program().load(gpu_), sixteen = sixteen_program(gpu_);
  GpuMaker m("step");
  const Expr n = symbol_n();
  const uint32_t p = m.input("p", vector_type(n)), g = m.input("g", vector_type(n));
  m.add(p, g, m.output("p_next", vector_type(n), 0), n);
  const Executable step = m.load(gpu_);
  constexpr int64_t kSmall = 1 << 10;
  const Array one = filled(kSmall, 1, gpu_);
  // Shared by all: an array, and the number that its elements are.
  std::mutex mutex;
  std::pair<Array, float> shared{filled(kSmall, 1, gpu_), 1.f};
  std::atomic<int> wrong{0}, overwritten{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const Stream mine(gpu_);
      for (int i = 0; i < 100; ++i) {
        const StreamGuard guard(i % 7 == 3 ? Stream::main(gpu_) : mine);
        Array result;
        float expected = 0;
        if (i % 3 == t % 3) {
          const std::lock_guard lock(mutex);
          shared = {step.run(std::vector{shared.first, one})[0], shared.second + 1};
          ++overwritten;
          continue;
        }
        std::pair<Array, float> seen;
        {
          const std::lock_guard lock(mutex);
          seen = shared;
        }
        try {
          const Executable& reads = i % 2 ? sum : sixteen;
          result = i % 2 ? reads.run(std::vector{seen.first, one})[0]
                         : reads.run(std::vector{seen.first})[0];
          expected = i % 2 ? seen.second + 1 : 16 * seen.second;
        } catch (const Error& error) {
          wrong += error.code().name != "donated-array";  // another thread was faster
          continue;
        }
        seen = {};
        wrong += result.to_vector<float>() != std::vector<float>(kSmall, expected);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(shared.first.to_vector<float>(),
            std::vector<float>(kSmall, 1 + static_cast<float>(overwritten)));
}

}  // namespace
}  // namespace braze::test
