// Two GPUs that work together through NCCL: real ones, or the fake driver and its fake NCCL, which
// do everything as late as they may.
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "ir/graph/shards.h"
#include "ir/support/text.h"
#include "runtime/devices/cuda/nccl.h"
#include "runtime/devices/registry.h"
#include "runtime/execution/plan.h"
#include "runtime/mesh/mesh_executable.h"
#include "tests/no_threads.h"
#include "tests/runtime/cuda/cuda_test.h"
#include "tests/runtime/watchdog.h"
#include "tests/temporary_folder.h"

namespace braze::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kElements = 256;

class CudaMesh : public Cuda {
 protected:
  void SetUp() override {
    Cuda::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (device_count(DeviceKind::Cuda) < 2) GTEST_SKIP() << "a mesh of two needs a second GPU";
    if (!cuda::nccl().api) GTEST_SKIP() << cuda::nccl().missing;
    mesh_.emplace(std::vector<MeshAxis>{{"data", 2}}, std::vector<Device>{"cuda:0", "cuda:1"});
  }

  /// y = 2 * collective(2 * x), or without the second kernel where the size changes.
  MeshExecutable program(Collective collective, int64_t result = kElements) const {
    GpuMaker m("together", {});
    m.program->mesh = {{"data", 2}};
    const TensorType type{DType::F32, {kElements}};
    const uint32_t x = m.input("x", type);
    m.program->inputs[0].varying = {0};
    const uint32_t twice = m.temporary("twice", type, 0);
    const uint32_t all = m.temporary("all", {DType::F32, {result}}, 4 * kElements);
    const uint32_t y = m.output("y", {DType::F32, {result}});
    m.program->arena_bytes = 4 * kElements + 4 * 2 * kElements;
    m.add(x, x, twice, kElements);
    Launch& launch = m.program->launches.emplace_back();
    launch.artifact = Launch::kCollective;
    launch.collective = collective;
    launch.buffers = {twice, all};
    launch.name = "all";
    m.add(all, all, y, result);
    return MeshExecutable::load(m.program, *mesh_);
  }

  static Array argument_on(const Device& device, float first, int64_t count = kElements) {
    Floats values = counting(count);
    for (float& value : values) value += first;
    return Array::from(values, {count}, device);
  }
  std::vector<std::vector<Array>> arguments(float first, int64_t count = kElements) const {
    std::vector<std::vector<Array>> out;
    for (size_t device = 0; device < 2; ++device)
      out.push_back({argument_on(mesh_->devices()[device],
                                 first + 1000 * static_cast<float>(device), count)});
    return out;
  }

  std::optional<Mesh> mesh_;
};

// Element i of device d is i + 1000 d, and everything is multiplied by 4. With and without a bound
// of its blocks.
TEST_F(CudaMesh, DoEveryCollective) {
  struct Case {
    Collective what;
    int64_t result;
    float (*expected)(int64_t device, int64_t i);
  };
  constexpr int64_t kHalf = kElements / 2;
  const Case cases[] = {
      {{CollectiveKind::AllReduce}, kElements, [](int64_t, int64_t i) { return 2.f * i + 1000; }},
      {{CollectiveKind::AllReduce, 0, Monoid::Max},
       kElements,
       [](int64_t, int64_t i) { return i + 1000.f; }},
      {{CollectiveKind::AllReduce, 0, Monoid::Min},
       kElements,
       [](int64_t, int64_t i) { return 1.f * i; }},
      {{CollectiveKind::AllGather},
       2 * kElements,
       [](int64_t, int64_t i) { return i % kElements + (i < kElements ? 0 : 1000.f); }},
      {{CollectiveKind::ReduceScatter},
       kHalf,
       [](int64_t device, int64_t i) { return 2.f * (i + device * kHalf) + 1000; }},
      {{CollectiveKind::BroadcastOver, 0, Monoid::Sum, 1},
       kElements,
       [](int64_t, int64_t i) { return i + 1000.f; }},
      {{CollectiveKind::Permute, 0, Monoid::Sum, 1},
       kElements,
       [](int64_t device, int64_t i) { return i + (device == 0 ? 1000.f : 0); }},
      {{CollectiveKind::AllToAll},
       kElements,
       [](int64_t device, int64_t i) {
         return i % kHalf + device * kHalf + (i < kHalf ? 0 : 1000.f);
       }},
  };
  for (const Case& c : cases) {
    Collective bounded = c.what;
    bounded.blocks = 2;
    const MeshExecutable free = program(c.what, c.result), few = program(bounded, c.result);
    for (int repeat = 0; repeat < 6; ++repeat) {
      const MeshExecutable& run = repeat % 2 == 0 ? free : few;
      const auto got = run.run(arguments(0));
      for (int64_t device = 0; device < 2; ++device) {
        const Floats y = got[static_cast<size_t>(device)][0].to_vector<float>();
        for (int64_t i = 0; i < c.result; ++i)
          ASSERT_EQ(y[static_cast<size_t>(i)], 4 * c.expected(device, i))
              << name(c.what.kind) << " on device " << device << " at " << i;
      }
    }
  }
}

// Collectives are beside launches, up to the first that touches memory of theirs.
TEST_F(CudaMesh, CollectivesAreAwaitedWhereTheirMemoryIsTouched) {
  GpuMaker m("beside", {});
  m.program->mesh = {{"data", 2}};
  const TensorType type{DType::F32, {kElements}};
  constexpr int64_t kBytes = 4 * kElements;
  const uint32_t x = m.input("x", type);
  m.program->inputs[0].varying = {0};
  const uint32_t a = m.temporary("a", type, 0), sum_a = m.temporary("sum_a", type, kBytes);
  const uint32_t b = m.temporary("b", type, 2 * kBytes);
  const uint32_t c = m.temporary("c", type, 2 * kBytes + 64);  // partly b's
  const uint32_t d = m.temporary("d", type, 0);                // a's
  const uint32_t sum_b = m.output("sum_b", type), y = m.output("y", type), z = m.output("z", type);
  m.program->arena_bytes = 4 * kBytes;
  const auto all_reduce = [&](uint32_t from, uint32_t to) {
    Launch& launch = m.program->launches.emplace_back();
    launch.artifact = Launch::kCollective;
    launch.buffers = {from, to};
    launch.name = "all";
  };
  m.add(x, x, a, kElements);
  all_reduce(a, sum_a);
  m.add(x, x, b, kElements);
  all_reduce(b, sum_b);
  m.add(sum_a, sum_a, y, kElements);
  m.add(x, x, d, kElements);
  m.add(d, d, c, kElements);
  m.add(c, y, z, kElements);

  const MeshExecutable run = MeshExecutable::load(m.program, *mesh_);
  const auto given = arguments(3);
  const Plan plan(m.program, Registry::get().driver("cuda:0"));
  std::vector<std::optional<uint32_t>> awaits;
  for (const auto& launch : plan.bind(given[0])->launches) awaits.push_back(launch.awaits);
  const std::optional<uint32_t> none;
  EXPECT_THAT(awaits, testing::ElementsAre(none, none, none, none, 1, none, 3, none));

  const auto got = run.run(given);
  for (size_t device = 0; device < 2; ++device) {
    const auto own = 3 + 1000 * static_cast<float>(device);
    EXPECT_EQ(got[device][0].to_vector<float>()[5], 2 * (2 * (5 + 3.f) + 1000));
    EXPECT_EQ(got[device][1].to_vector<float>()[5], 4 * (2 * (5 + 3.f) + 1000));
    EXPECT_EQ(got[device][2].to_vector<float>()[5], 4 * (5 + own) + 4 * (2 * (5 + 3.f) + 1000));
  }
}

// Nothing in the call needs what they make.
TEST_F(CudaMesh, ACallEndsWithItsLastCollectives) {
  GpuMaker m("last", {});
  m.program->mesh = {{"data", 2}};
  const TensorType type{DType::F32, {kElements}};
  const uint32_t x = m.input("x", type);
  m.program->inputs[0].varying = {0};
  const uint32_t twice = m.temporary("twice", type, 0), y = m.output("y", type);
  m.program->arena_bytes = 4 * kElements;
  m.add(x, x, twice, kElements);
  Launch& launch = m.program->launches.emplace_back();
  launch.artifact = Launch::kCollective;
  launch.buffers = {twice, y};
  launch.name = "all";
  const MeshExecutable run = MeshExecutable::load(m.program, *mesh_);
  for (int repeat = 0; repeat < 3; ++repeat) {
    const auto got = run.run(arguments(static_cast<float>(repeat)));
    for (size_t device = 0; device < 2; ++device)
      EXPECT_EQ(got[device][0].to_vector<float>()[5],
                2 * (2 * static_cast<float>(5 + repeat) + 1000));
  }
}

// Before anything runs, so that the communicators stay. The error has the user's line and the fix.
TEST_F(CudaMesh, WhatNcclDoesNotCombineIsRefusedWhenItIsLoaded) {
  const auto load = [&](DType dtype, CollectiveKind kind) {
    GpuMaker m("narrow", {});
    m.program->mesh = {{"data", 2}};
    const uint32_t a = m.input("a", {DType::F32, {4}}), b = m.output("b", {DType::F32, {4}});
    const uint32_t x = m.input("x", {dtype, {4}}), y = m.output("y", {dtype, {4}});
    m.program->inputs[0].varying = m.program->inputs[1].varying = {0};
    m.program->locations = {{}, {"step.cpp", 11, 0}, {"step.cpp", 12, 0}};
    Launch& launch = m.program->launches.emplace_back();
    launch.artifact = Launch::kCollective;
    launch.collective = {kind};
    launch.name = "both";
    launch.members = {"a_all", "x_all"};
    launch.ops = {"a : f32[4] at node:1", "x : i16[4] at node:2"};
    launch.buffers = {a, b, x, y};
    return MeshExecutable::load(m.program, *mesh_);
  };
  for (const CollectiveKind kind : {CollectiveKind::AllReduce, CollectiveKind::ReduceScatter}) {
    EXPECT_THAT(error_of([&] { load(DType::I16, kind); }),
                AllOf(HasSubstr("step.cpp:12"), HasSubstr("x_all"),
                      HasSubstr(fmt::format("NCCL, which has no {} of i16", name(kind))),
                      HasSubstr("convert its operand to i32, and its result back")));
    EXPECT_THAT(error_of([&] { load(DType::U16, kind); }), HasSubstr("of u16"));
  }
  EXPECT_NO_THROW(load(DType::I32, CollectiveKind::AllReduce));
  // What only moves bytes takes any dtype.
  EXPECT_NO_THROW(load(DType::I16, CollectiveKind::Permute));
}

// Members of one launch that lie one behind another are one all_reduce; with the others, which lie
// elsewhere, they are one group.
TEST_F(CudaMesh, AllReducesOfOneLaunchAreDoneAtOnce) {
  GpuMaker m("bucket", {});
  m.program->mesh = {{"data", 2}};
  constexpr int64_t kOwn = kElements - 3;  // the rest up to a multiple of 64 bytes is nobody's
  const TensorType type{DType::F32, {kOwn}};
  constexpr int64_t kBytes = 4 * kElements;
  constexpr size_t kMany = 6, kPacked = 4;
  const uint32_t x = m.input("x", type);
  m.program->inputs[0].varying = {0};
  std::vector<uint32_t> parts = {x}, sums;
  Launch bucket;
  bucket.artifact = Launch::kCollective;
  bucket.name = "all";
  for (size_t i = 0; i < kMany; ++i) {
    const bool packed = i < kPacked;
    const auto place = static_cast<int64_t>(packed ? i : 2 * i);
    const std::string number = std::to_string(i);
    parts.push_back(m.temporary("part" + number, type, place * kBytes));
    // The results of the others are their devices' own, even if they follow each other.
    sums.push_back(packed ? m.temporary("sum" + number, type, (20 + place) * kBytes)
                          : m.output("sum" + number, type));
    m.add(x, parts[i], parts.back(), kOwn);
    bucket.members.push_back("all" + number);
    bucket.buffers.insert(bucket.buffers.end(), {parts.back(), sums.back()});
  }
  m.program->arena_bytes = 30 * kBytes;
  m.program->launches.push_back(bucket);
  for (size_t i = 0; i < kMany; ++i)
    m.add(sums[i], sums[i], m.output("y" + std::to_string(i), type), kOwn);

  const MeshExecutable run = MeshExecutable::load(m.program, *mesh_);
  const auto given = arguments(0, kOwn);
  if (fake_cuda()) fake_cuda()->reset();
  const auto got = run.run(given);
  for (size_t device = 0; device < 2; ++device)
    for (size_t i = 0; i < kMany; ++i) {
      const Floats y = got[device][kMany - kPacked + i].to_vector<float>();
      for (size_t k = 0; k < y.size(); ++k)
        ASSERT_EQ(y[k], 2 * static_cast<float>(i + 2) * (2 * static_cast<float>(k) + 1000));
    }
  if (fake_cuda()) {
    EXPECT_EQ(fake_cuda()->calls["nccl all_reduce"], 2 * (1 + kMany - kPacked));
    EXPECT_EQ(fake_cuda()->calls["nccl group"], 2);  // one a device
  }
}

// The launches before and after the collective are recorded. The collective itself never is.
TEST_F(CudaMesh, WhatStandsBetweenCollectivesIsRecorded) {
  GpuMaker m("stretches", {});
  m.program->mesh = {{"data", 2}};
  const TensorType type{DType::F32, {kElements}};
  uint32_t value = m.input("x", type);
  m.program->inputs[0].varying = {0};
  int64_t used = 0;
  const auto temporary = [&](const char* name) {
    return m.temporary(name, type, std::exchange(used, used + 4 * kElements));
  };
  const auto doubled = [&](uint32_t to) {
    const uint32_t from = std::exchange(value, to);
    m.add(from, from, to, kElements);
  };
  for (const char* name : {"a", "b", "c"}) doubled(temporary(name));
  Launch& launch = m.program->launches.emplace_back();
  launch.artifact = Launch::kCollective;
  launch.collective = {CollectiveKind::AllReduce};
  const uint32_t all = temporary("all");
  launch.buffers = {value, all};
  launch.name = "all";
  value = all;
  for (const char* name : {"d", "e"}) doubled(temporary(name));
  doubled(m.output("y", type));
  m.program->arena_bytes = used;
  const MeshExecutable together = MeshExecutable::load(m.program, *mesh_);
  const Executable alone = sixteen_program(gpu_);
  constexpr int kCalls = 30;
  if (fake_cuda()) fake_cuda()->reset();
  for (int i = 0; i < kCalls; ++i) {
    const auto first = static_cast<float>(i % 3);
    const auto got = together.run(arguments(first));
    for (size_t device = 0; device < 2; ++device)
      ASSERT_EQ(got[device][0].to_vector<float>()[5], 64 * (2 * (5 + first) + 1000));
    // Recorded in the same streams.
    ASSERT_THAT(run(alone, {filled(300, first, gpu_)})[0].to_vector<float>(), Each(16 * first));
  }
  if (fake_cuda()) {
    EXPECT_GT(fake_cuda()->calls["cuGraphLaunch"], 4 * kCalls / 2);
    EXPECT_EQ(fake_cuda()->calls["nccl all_reduce"], 2 * kCalls);
  }
}

// What is read late, after many more calls, is still what its call made.
TEST_F(CudaMesh, ManyCallsBeforeAnyResultIsRead) {
  const MeshExecutable run = program({CollectiveKind::AllReduce});
  std::vector<std::vector<std::vector<Array>>> results;
  for (int i = 0; i < 40; ++i) results.push_back(run.run(arguments(static_cast<float>(i))));
  for (int i = 39; i >= 0; --i)
    for (size_t device = 0; device < 2; ++device)
      EXPECT_EQ(results[static_cast<size_t>(i)][device][0].to_vector<float>()[5],
                4 * (2 * (5.f + static_cast<float>(i)) + 1000));
}

TEST_F(CudaMesh, CallsOfSeveralThreads) {
  const MeshExecutable run = program({CollectiveKind::AllReduce});
  std::atomic<int> wrong = 0;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        const auto first = static_cast<float>(100 * t + i);
        const auto got = run.run(arguments(first));
        for (const auto& device : got)
          wrong += device[0].to_vector<float>()[7] != 4 * (2 * (7 + first) + 1000);
      }
    });
  }
  threads.clear();
  EXPECT_EQ(wrong, 0);
}

// The error comes from the call itself, and the GPUs go on with new communicators.
TEST_F(CudaMesh, AFailureOnOneGpuIsTheCalls) {
  if (!fake_cuda()) GTEST_SKIP() << "only the fake NCCL fails when asked";
  const MeshExecutable run = program({CollectiveKind::AllReduce});
  for (int repeat = 0; repeat < 50; ++repeat) {
    for (const int after : {0, 1}) {
      fake_cuda()->failures["nccl all_reduce"] = {after, cuda::CUresult{3}, 1};
      EXPECT_THAT(error_of([&] { run.run(arguments(0)); }),
                  HasSubstr("NCCL: all_reduce fails: ncclInternalError"));
      fake_cuda()->failures.clear();
      const auto got = run.run(arguments(0));
      ASSERT_EQ(got[1][0].to_vector<float>()[5], 4 * 1010.f);
    }
  }
  // Who synchronizes with a GPU is told its first error once more; the next test is not.
  for (const char* gpu : {"cuda:0", "cuda:1"}) error_of([&] { synchronize(Device(gpu)); });
}

// In a group that stays open, no later collective of the thread would ever begin.
TEST_F(CudaMesh, AFailureWithinAGroupEndsTheGroup) {
  if (!fake_cuda()) GTEST_SKIP() << "only the fake NCCL fails when asked";
  const MeshExecutable sum = program({CollectiveKind::AllReduce});
  const MeshExecutable permutes = program({CollectiveKind::Permute, 0, Monoid::Sum, 1});
  const MeshExecutable transposes = program({CollectiveKind::AllToAll});
  float first = 0;  // what memory has of earlier calls is not what this one makes
  for (const MeshExecutable* run : {&permutes, &transposes})
    for (const char* what : {"nccl send", "nccl recv"})
      for (const int after : {0, 1}) {
        fake_cuda()->failures[what] = {after, cuda::CUresult{3}, 1};
        EXPECT_THAT(error_of([&] { run->run(arguments(0)); }), HasSubstr("ncclInternalError"));
        fake_cuda()->failures.clear();
        const auto got = sum.run(arguments(++first));
        for (size_t device = 0; device < 2; ++device)
          ASSERT_EQ(got[device][0].to_vector<float>()[5], 4 * (2 * (5 + first) + 1000));
      }
  for (const char* gpu : {"cuda:0", "cuda:1"}) error_of([&] { synchronize(Device(gpu)); });
}

// A failing call aborts the communicators, but not what earlier calls have in the queues.
TEST_F(CudaMesh, EarlierCallsOutliveAFailure) {
  if (!fake_cuda()) GTEST_SKIP() << "only the fake NCCL fails when asked";
  const MeshExecutable run = program({CollectiveKind::AllReduce});
  const auto earlier = run.run(arguments(0));
  fake_cuda()->failures["nccl all_reduce"] = {1, cuda::CUresult{3}, 1};
  EXPECT_THAT(error_of([&] { run.run(arguments(0)); }), HasSubstr("ncclInternalError"));
  fake_cuda()->failures.clear();
  for (size_t device = 0; device < 2; ++device)
    EXPECT_EQ(earlier[device][0].to_vector<float>()[5], 4 * 1010.f);
  for (const char* gpu : {"cuda:0", "cuda:1"}) error_of([&] { synchronize(Device(gpu)); });
}

// Whether the first call of a collective stays in NCCL, until another has failed and 20
// milliseconds longer.
int stays_left = 0;
bool stays_a_while(const std::string& kind, bool is_aborted) {
  if (stays_left == 0 || is_aborted) return false;
  if (fake_cuda()->failures["nccl " + kind].times == 0) --stays_left;
  return true;
}
bool stays_until_the_abort(const std::string&, bool is_aborted) { return !is_aborted; }

// What another thread does in NCCL has its memory until it leaves, unless only the abort ends that.
TEST_F(CudaMesh, CommunicatorsAreAbortedWhenNobodyCallsThem) {
  if (!fake_cuda()) GTEST_SKIP() << "only the fake NCCL stays in a call when asked";
  const Watchdog watchdog("a call in NCCL that only an abort ends");
  const MeshExecutable run = program({CollectiveKind::AllReduce});
  const auto aborts_within_a_call = [&](bool (*stays)(const std::string&, bool)) {
    fake_cuda()->calls.clear();
    fake_cuda()->failures["nccl all_reduce"] = {1, cuda::CUresult{3}, 1};
    fake_cuda()->stays_in_nccl = stays;
    EXPECT_THAT(error_of([&] { run.run(arguments(0)); }), HasSubstr("ncclInternalError"));
    fake_cuda()->stays_in_nccl = nullptr;
    fake_cuda()->failures.clear();
    EXPECT_EQ(run.run(arguments(0))[1][0].to_vector<float>()[5], 4 * 1010.f);
    return fake_cuda()->calls["nccl abort within a call"] > 0;
  };
  // A thread that does not run for long may outlast the time that is given to it.
  int within = 0;
  for (int repeat = 0; repeat < 5; ++repeat) {
    stays_left = 20;
    within += aborts_within_a_call(stays_a_while);
  }
  EXPECT_LT(within, 3);
  EXPECT_TRUE(aborts_within_a_call(stays_until_the_abort));
  for (const char* gpu : {"cuda:0", "cuda:1"}) error_of([&] { synchronize(Device(gpu)); });
}

// Meshes with the same GPUs share communicators, which are freed with the last of the meshes, after
// what is under way.
TEST_F(CudaMesh, CommunicatorsAreFreedWithTheLastMesh) {
  if (!fake_cuda()) GTEST_SKIP() << "only the fake NCCL counts its calls";
  std::vector<std::vector<Array>> results;
  const auto calls = [&](const char* name) { return fake_cuda()->calls[name]; };
  fake_cuda()->reset();
  {
    const MeshExecutable first = program({CollectiveKind::AllReduce});
    results = first.run(arguments(0));
    EXPECT_EQ(calls("nccl init"), 1);
    mesh_.emplace(std::vector<MeshAxis>{{"data", 2}}, std::vector<Device>{"cuda:0", "cuda:1"});
    const MeshExecutable second = program({CollectiveKind::AllReduce});
    const auto others = second.run(arguments(1));
    EXPECT_EQ(others[1][0].to_vector<float>()[5], 4 * 1012.f);
    EXPECT_EQ(calls("nccl init"), 1);
    // Other GPUs, or the same in another order, are another group.
    mesh_.emplace(std::vector<MeshAxis>{{"data", 2}}, std::vector<Device>{"cuda:1", "cuda:0"});
    program({CollectiveKind::AllReduce}).run(arguments(1));
    EXPECT_EQ(calls("nccl init"), 2);
    mesh_.reset();
    EXPECT_EQ(calls("nccl destroy"), 2);
    results = first.run(
        std::vector<std::vector<Array>>{{argument_on("cuda:0", 0)}, {argument_on("cuda:1", 1000)}});
  }
  EXPECT_EQ(calls("nccl destroy"), 4);
  for (size_t device = 0; device < 2; ++device)
    EXPECT_EQ(results[device][0].to_vector<float>()[5], 4 * 1010.f);
  EXPECT_THAT(fake_cuda()->misuse, IsEmpty());
}

// Collectives whose blocks have a bound have communicators of their own, which end with the others.
TEST_F(CudaMesh, CollectivesWithABoundHaveTheirOwnCommunicators) {
  if (!fake_cuda()) GTEST_SKIP() << "only the fake NCCL counts its calls";
  const auto calls = [&](const char* name) { return fake_cuda()->calls[name]; };
  fake_cuda()->reset();
  const auto fails = [&](const char* what) {
    fake_cuda()->failures[what] = {0, cuda::CUresult{3}, 1};
    const std::string error = error_of(
        [&] { program({.kind = CollectiveKind::AllReduce, .blocks = 4}).run(arguments(0)); });
    fake_cuda()->failures.clear();
    return error;
  };
  {
    const MeshExecutable free = program({CollectiveKind::AllReduce});
    const MeshExecutable few = program({.kind = CollectiveKind::AllReduce, .blocks = 2});
    const auto check = [&] {
      for (const MeshExecutable* run : {&few, &free, &few})
        EXPECT_EQ(run->run(arguments(0))[1][0].to_vector<float>()[5], 4 * 1010.f);
    };
    const auto unread = free.run(arguments(0));
    check();
    EXPECT_EQ(calls("nccl init"), 1);
    EXPECT_EQ(calls("nccl split"), 2);
    // Nothing has been submitted when they cannot be made, so the others stay.
    EXPECT_THAT(fails("nccl split"), HasSubstr("making communicators of 4 blocks fails"));
    check();
    EXPECT_EQ(calls("nccl init"), 1);
    // All are aborted together, and all are made again.
    EXPECT_THAT(fails("nccl all_reduce"), HasSubstr("all_reduce fails"));
    fake_cuda()->calls.clear();
    check();
    EXPECT_EQ(calls("nccl init"), 1);
    EXPECT_EQ(calls("nccl split"), 2);
    mesh_.reset();
  }
  EXPECT_EQ(calls("nccl destroy"), 4);
  EXPECT_THAT(fake_cuda()->misuse, IsEmpty());
  for (const char* gpu : {"cuda:0", "cuda:1"}) error_of([&] { synchronize(Device(gpu)); });
}

// A call needs a thread for each GPU but one: NCCL may wait for all of them in its functions. In a
// process of its own, which has none yet.
using CudaMeshDeathTest = CudaMesh;
TEST_F(CudaMeshDeathTest, AGpuWithoutAThreadIsRefused) {
  const auto child = [&] {
    const MeshExecutable run = program({CollectiveKind::AllReduce});
    const auto given = arguments(0);
    {
      const NoThreads none;
      fmt::print(stderr, "{}\n", error_of([&] { run.run(given); }));
    }
    fmt::print(stderr, "then {}\n", run.run(given)[1][0].to_vector<float>()[5]);
    std::_Exit(HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(0),
              "no-thread.: no thread can be started for cuda:1(.|\n)*then 4040\n");
}

TEST(Nccl, AnUnusableOneIsPassedOver) {
  const std::vector<std::string> none = {"libnothing.so.2", "libc.so.6"};
  EXPECT_THAT(cuda::open_first_nccl(none).missing,
              AllOf(HasSubstr("libc.so.6 is no NCCL; no libnccl"),
                    HasSubstr("`pip install nvidia-nccl-cu12` has one")));
  const char* const fake = std::getenv("BRAZE_NCCL");
  if (!fake) GTEST_SKIP() << "no file that is known to be an NCCL";
  const std::vector<std::string> libraries = {"libnothing.so.2", "libc.so.6", fake};
  EXPECT_EQ(cuda::open_first_nccl(libraries).file, fake);
}

// It is taken before any other, and finds multicast turned off unless the user says otherwise. In a
// process of its own, because a process keeps the NCCL that it found.
TEST(NcclDeathTest, OneThatTheProcessHasLoadedIsTaken) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  constexpr const char* kVariable = "NCCL_NVLS_ENABLE";
  for (const char* given : {"", "1"}) {
    const auto find = [&] {
      *given ? setenv(kVariable, given, 1) : unsetenv(kVariable);
      setenv("BRAZE_NCCL", "libnothing.so.2", 1);
      if (!dlopen(BRAZE_LOADED_NCCL, RTLD_NOW | RTLD_LOCAL)) std::fputs(dlerror(), stderr);
      const cuda::OpenedNccl& found = cuda::nccl();
      fmt::print(stderr, "found: {}{}, {}", cuda::nccl_version_text(found.version), found.missing,
                 std::getenv(kVariable));
      std::_Exit(0);
    };
    EXPECT_EXIT(find(), testing::ExitedWithCode(0),
                fmt::format("found: 2[0-9.]+, {}$", *given ? given : "0"));
  }
}

TEST(Nccl, IsSoughtInSitePackages) {
  const TemporaryFolder environment;
  const std::filesystem::path library =
      environment.path / "lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2";
  std::filesystem::create_directories(library.parent_path());
  std::ofstream(library).close();
  const char* const before = std::getenv("VIRTUAL_ENV");
  const std::string kept = before ? before : "";
  setenv("VIRTUAL_ENV", environment.path.c_str(), 1);
  EXPECT_THAT(cuda::nccl_in_site_packages(), testing::Contains(library));
  before ? setenv("VIRTUAL_ENV", kept.c_str(), 1) : unsetenv("VIRTUAL_ENV");
}

TEST(Nccl, SaysWhatIsMissing) {
  EXPECT_THAT(cuda::open_nccl("libnothing.so.2").missing, HasSubstr("libnothing.so.2"));
  EXPECT_THAT(cuda::open_nccl("libc.so.6").missing, HasSubstr("libc.so.6 is no NCCL"));
  EXPECT_EQ(cuda::nccl_version_text(22809), "2.28.9");
}

}  // namespace
}  // namespace braze::test
