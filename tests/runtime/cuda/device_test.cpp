// The device "cuda:0" through the runtime's own interfaces: on a GPU where there is one, on the
// fake driver where BRAZE_CUDA_DRIVER names it, else skipped.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <thread>

#include "ir/support/env.h"
#include "ir/support/trace.h"
#include "ir/values/host_tensor.h"
#include "runtime/devices/cuda/cuda_system.h"
#include "runtime/devices/cuda/driver_api.h"
#include "runtime/memory/array_state.h"
#include "runtime/profile/speeds.h"
#include "tests/runtime/cuda/fake_cuda.h"
#include "tests/runtime/cuda/kernels.h"
#include "tests/runtime/trace_reader.h"

namespace braze::test {

FakeCuda* fake_cuda() {
  static FakeCuda* const fake = [] {
    const auto library = read_env(kEnvCudaDriver);
    void* const handle = library ? dlopen(library->c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
    void* const get = handle ? dlsym(handle, "braze_fake_cuda") : nullptr;
    return get ? reinterpret_cast<FakeCuda* (*)()>(get)() : nullptr;
  }();
  return fake;
}

namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

using Floats = std::vector<float>;

std::vector<Array> run(const Executable& executable, std::vector<Array> arguments) {
  return executable.run(arguments);
}

Floats counting(int64_t n) {
  Floats values(static_cast<size_t>(n));
  std::iota(values.begin(), values.end(), 0.f);
  return values;
}

class Cuda : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string& missing = CudaSystem::get().missing(); !missing.empty()) {
      if (read_env(kEnvCudaDriver)) FAIL() << missing;
      GTEST_SKIP() << "no CUDA device: " << missing;
    }
    if (fake_cuda()) fake_cuda()->reset();
  }
  void TearDown() override {
    if (fake_cuda()) {
      EXPECT_THAT(fake_cuda()->misuse, IsEmpty());
      fake_cuda()->reset();
    }
  }

  static bool is_hopper() { return CudaSystem::get().gpus()[0].major == 9; }

  const Device gpu_ = CudaSystem::get().missing().empty() ? Device("cuda:0") : Device();
};

#define SKIP_UNLESS_HOPPER() \
  if (!is_hopper()) GTEST_SKIP() << "cuda:0 has not the compute capability 9.0"

TEST_F(Cuda, IsTheDefaultDevice) {
  EXPECT_EQ(default_device(), gpu_);
  EXPECT_EQ(Device("cuda"), gpu_);
  EXPECT_EQ(gpu_.name(), "cuda:0");
  EXPECT_EQ(gpu_.kind(), DeviceKind::Cuda);
  EXPECT_THAT(devices(), Contains(gpu_));
  EXPECT_EQ(device_count(DeviceKind::Cuda), static_cast<int>(CudaSystem::get().gpus().size()));
  EXPECT_EQ(Array::from(Floats{1}, {1}).device(), gpu_);
  const DeviceGuard guard("cpu");
  EXPECT_EQ(Array::from(Floats{1}, {1}).device(), Device("cpu"));
  EXPECT_THAT(error_of([] { Device("cuda:99"); }),
              AllOf(StartsWith("no-such-device"), HasSubstr("cuda:0")));
  EXPECT_THAT(error_of([] { Device("cuda:x"); }), StartsWith("no-such-device"));
}

TEST_F(Cuda, TargetHasTheSizesOfTheGpu) {
  const Target& target = gpu_.target();
  const GpuFacts& gpu = CudaSystem::get().gpus()[0];
  EXPECT_EQ(target.kind, TargetKind::Gpu);
  EXPECT_EQ(target.cores, gpu.multiprocessors);
  EXPECT_EQ(target.l1_bytes, gpu.block_shared_bytes);
  EXPECT_EQ(target.l3_bytes, gpu.l2_bytes);
  EXPECT_EQ(parse_target(target.to_string()), target);
  if (fake_cuda()) {
    EXPECT_EQ(target.name, "sm_90a");
    EXPECT_NEAR(target.memory_bytes_per_second, 3.352e12, 1e10);
    EXPECT_NEAR(target.flops_per_second, 33.5e12, 1e11);
    EXPECT_EQ(target.l2_bytes, 256 << 10);
  }
}

TEST_F(Cuda, ArraysOfEverySizeComeBackAsTheyWent) {
  constexpr int64_t kPiece = (4 << 20) / sizeof(float);
  for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{1000}, kPiece - 1, kPiece, kPiece + 1,
                          5 * kPiece + 17, 9 * kPiece}) {
    const Floats values = counting(n);
    const Array a = Array::from(values, {n}, gpu_);
    EXPECT_EQ(a.to_vector<float>(), values) << n;
    EXPECT_EQ(a.to("cpu").to_vector<float>(), values) << n;
    EXPECT_EQ(a.to("cpu").to(gpu_).to_vector<float>(), values) << n;
  }
}

TEST_F(Cuda, ManyUploadsOutrunTheDevice) {
  std::vector<Array> arrays;
  constexpr int64_t kCount = 30'000;
  for (int i = 0; i < 30; ++i) {
    for (int64_t n : {int64_t{1}, kCount * (i % 7)}) {
      arrays.push_back(
          Array::from(Floats(static_cast<size_t>(n), static_cast<float>(i)), {n}, gpu_));
    }
  }
  for (size_t i = 0; i < arrays.size(); ++i) {
    EXPECT_THAT(arrays[i].to_vector<float>(), Each(static_cast<float>(i / 2)));
  }
}

TEST_F(Cuda, ComputesForEverySize) {
  const Executable sum = gpu_add_program().load(gpu_);
  for (const int64_t n : {0, 1, 2, 127, 128, 129, 100'000, 1}) {
    const Array x = Array::from(counting(n), {n}, gpu_);
    const Floats z = run(sum, {x, filled(n, 0.5f, gpu_)})[0].to_vector<float>();
    ASSERT_EQ(z.size(), static_cast<size_t>(n));
    for (size_t i = 0; i < z.size(); ++i) ASSERT_EQ(z[i], static_cast<float>(i) + 0.5f);
  }
}

TEST_F(Cuda, ZeroedAndCopiedSlotsConstantsAndTheArena) {
  GpuMaker m("many");
  const Expr n = symbol_n();
  const Expr bytes = 256 * ceildiv(4 * n, 256);
  HostTensor ten(DType::F32, {64});
  for (int64_t i = 0; i < 64; ++i) ten.set_double(i, 10);
  m.program->constants.push_back(std::make_shared<const HostTensor>(ten));
  const uint32_t x = m.input("x", vector_type(n));
  const uint32_t zeros = m.temporary("zeros", vector_type(n), 0);
  const uint32_t copy = m.temporary("copy", vector_type(n), bytes);
  const uint32_t y = m.output("y", vector_type(n));
  const uint32_t z = m.output("z", {DType::F32, {64}});
  const uint32_t c = m.slot(Slot::Kind::Constant, 0, {DType::F32, {64}}, "ten");
  m.program->outputs.push_back({"c", {DType::F32, {64}}, c, {}});
  m.program->arena_bytes = 2 * bytes;
  Launch& copies = m.program->launches.emplace_back();
  copies.artifact = Launch::kCopy;
  copies.buffers = {x, copy};
  m.add(zeros, copy, y, n).zeroed = {zeros};
  m.add(c, c, z, 64);
  const Executable many = m.load(gpu_);
  for (int round = 0; round < 3; ++round) {
    const auto out = run(many, {Array::from(counting(500), {500}, gpu_)});
    EXPECT_EQ(out[0].to_vector<float>(), counting(500)) << "x + 0";
    EXPECT_THAT(out[1].to_vector<float>(), Each(20.f));
    EXPECT_THAT(out[2].to_vector<float>(), Each(10.f));
  }
}

TEST_F(Cuda, DonatedArgumentsAreUpdatedInPlace) {
  GpuMaker m("step");
  const Expr n = symbol_n();
  const uint32_t p = m.input("p", vector_type(n));
  const uint32_t g = m.input("g", vector_type(n));
  m.add(p, g, m.output("p_next", vector_type(n), 0), n);
  const Executable step = m.load(gpu_);
  Array parameter = filled(300, 0, gpu_);
  const Array gradient = filled(300, 1, gpu_);
  for (int i = 0; i < 100; ++i) {
    const Array old = parameter;
    parameter = run(step, {parameter, gradient})[0];
    EXPECT_THAT(error_of([&] { old.wait(); }), HasSubstr("@step"));
    if (i % 30 == 0) {
      EXPECT_THAT(parameter.to_vector<float>(), Each(static_cast<float>(i + 1)));
    }
  }
  EXPECT_THAT(parameter.to_vector<float>(), Each(100.f));
}

TEST_F(Cuda, MemoryIsReusedInTheOrderOfTheQueue) {
  const Executable sum = gpu_add_program().load(gpu_);
  synchronize(gpu_);
  empty_cache(gpu_);
  Array total = filled(1000, 0, gpu_);
  for (int i = 1; i <= 200; ++i) {
    // The array lives no longer than this statement; the next one gets its memory.
    total = run(sum, {total, filled(1000, static_cast<float>(i), gpu_)})[0];
  }
  const MemoryStats stats = memory_stats(gpu_);
  EXPECT_GT(stats.cache_hits, 390u);
  EXPECT_LT(stats.live_bytes + stats.cached_bytes, 64u << 10);
  EXPECT_THAT(total.to_vector<float>(), Each(20'100.f));
}

TEST_F(Cuda, CachedMemoryIsFreedOnlyWhenItIsOutOfUse) {
  const Executable sum = gpu_add_program().load(gpu_);
  const Array z = run(sum, {filled(5000, 1, gpu_), filled(5000, 2, gpu_)})[0];
  empty_cache(gpu_);
  EXPECT_EQ(memory_stats(gpu_).cached_bytes, 0u);
  EXPECT_THAT(z.to_vector<float>(), Each(3.f));
}

TEST_F(Cuda, CodeIsUnloadedOnlyWhenItIsOutOfUse) {
  const Array x = filled(5000, 1, gpu_);
  const Array z = run(gpu_add_program().load(gpu_), {x, x})[0];
  EXPECT_THAT(z.to_vector<float>(), Each(2.f));
}

/// Runs for a fifth of a second.
Executable slow_program(const Device& device) {
  GpuMaker m("slow", {});
  const uint32_t y = m.output("y", vector_type(1));
  m.kernel(kPlainPtx, "slow", {y}, {200'000'000}, 1, {32});
  return m.load(device);
}

TEST_F(Cuda, ReadersDoNotWaitForWhatComesLater) {
  const Executable sum = gpu_add_program().load(gpu_);
  const Executable slow = slow_program(gpu_);
  const Array x = filled(100, 1, gpu_);
  run(sum, {x, x})[0].wait();
  const auto start = std::chrono::steady_clock::now();
  const Array early = run(sum, {x, x})[0];
  const Array late = run(slow, {})[0];
  EXPECT_THAT(early.to_vector<float>(), Each(2.f));
  const std::chrono::duration<double> until_early = std::chrono::steady_clock::now() - start;
  if (fake_cuda()) {
    EXPECT_THAT(fake_cuda()->executed, Not(Contains("slow_p0")));
  }
  late.wait();
  const std::chrono::duration<double> until_late = std::chrono::steady_clock::now() - start;
  if (fake_cuda()) {
    EXPECT_THAT(fake_cuda()->executed, Contains("slow_p0"));
  } else {
    EXPECT_LT(until_early.count(), 0.15);
    EXPECT_GE(until_late.count(), 0.2);
  }
}

TEST_F(Cuda, SynchronizeWaitsForEverything) {
  const Executable slow = slow_program(gpu_);
  synchronize(gpu_);
  const auto start = std::chrono::steady_clock::now();
  const Array late = run(slow, {})[0];
  synchronize(gpu_);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  if (fake_cuda()) {
    EXPECT_THAT(fake_cuda()->executed, Contains("slow_p0"));
  } else {
    EXPECT_GE(taken.count(), 0.2);
  }
}

TEST_F(Cuda, ManyThreads) {
  const Executable sum = gpu_add_program().load(gpu_);
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const int64_t n = 1 + (t * 131 + i * 17) % 3000;
        const Array x = filled(n, static_cast<float>(t), gpu_);
        const Floats z = run(sum, {run(sum, {x, x})[0], x})[0].to_vector<float>();
        right += z == Floats(static_cast<size_t>(n), static_cast<float>(3 * t));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 8 * 50);
}

TEST_F(Cuda, LeavesNoContextBehind) {
  const auto opened = cuda::open_driver(read_env(kEnvCudaDriver).value_or("libcuda.so.1"));
  std::thread([&] {
    const Array x = filled(10, 1, gpu_);
    run(gpu_add_program().load(gpu_), {x, x})[0].to_vector<float>();
    synchronize(gpu_);
    empty_cache(gpu_);
    cuda::CUcontext context = nullptr;
    opened.api->ctx_get_current(&context);
    EXPECT_EQ(context, nullptr);
  }).join();
}

TEST_F(Cuda, LaunchesAreTimedOnTheDevice) {
  const Executable slow = slow_program(gpu_);
  clear_launch_history();
  record_launches(true);
  for (int i = 0; i < 2; ++i) run(slow, {});
  record_launches(false);
  const std::vector<LaunchRecord> history = launch_history();
  ASSERT_EQ(history.size(), 2u);
  for (const LaunchRecord& record : history) {
    EXPECT_EQ(record.kernel, "slow");
    EXPECT_EQ(record.device, gpu_);
    EXPECT_GT(record.seconds, 0);
    if (!fake_cuda()) {
      EXPECT_NEAR(record.seconds, 0.2, 0.05);
    }
  }
  clear_launch_history();
}

TEST_F(Cuda, LaunchHasTheShapeOfItsPhase) {
  SKIP_UNLESS_HOPPER();
  GpuMaker m("ranks", {}, "sm_90a");
  const uint32_t y = m.output("y", vector_type(12));
  const uint32_t z = m.output("z", vector_type(3));
  m.kernel(kHopperPtx, "rank", {y}, {}, 3, {.block = 1, .shared_bytes = 100'000, .cluster = 4});
  m.kernel(kHopperPtx, "rank", {z}, {}, 3, {.block = 1, .resident = true, .overlaps = true});
  const auto out = run(m.load(gpu_), {});
  EXPECT_THAT(out[0].to_vector<float>(), ElementsAre(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3));
  EXPECT_THAT(out[1].to_vector<float>(), Each(0.f));
  if (!fake_cuda()) return;
  ASSERT_EQ(fake_cuda()->launches.size(), 2u);
  const FakeLaunch& first = fake_cuda()->launches[0];
  EXPECT_EQ(first.kernel, "rank_p0");
  EXPECT_EQ(first.blocks, 12u);
  EXPECT_EQ(first.threads, 1u);
  EXPECT_EQ(first.shared_bytes, 100'000u);
  EXPECT_EQ(first.cluster, 4u);
  EXPECT_FALSE(first.cooperative || first.overlaps);
  EXPECT_TRUE(fake_cuda()->launches[1].cooperative && fake_cuda()->launches[1].overlaps);
}

TEST_F(Cuda, TensorMapsFollowSizesAndAddresses) {
  SKIP_UNLESS_HOPPER();
  const Expr rows = Expr::symbol("r", {1, 100}), columns = Expr::symbol("c", {1, 100}, 4);
  GpuMaker m("box", {rows, columns}, "sm_90a");
  const uint32_t x = m.input("x", {DType::F32, {rows, columns}});
  const uint32_t y = m.output("y", {DType::F32, {8, 32}});
  Launch& launch = m.kernel(kHopperPtx, "box", {x, y}, {}, 1, {.block = 256, .shared_bytes = 1032});
  launch.tensor_maps = {
      {.buffer = 0, .dtype = DType::F32, .extents = {rows, columns}, .box = {8, 32}}};
  const Executable box = m.load(gpu_);
  const auto check = [&](int64_t r, int64_t c, const Array& array) {
    const Floats got = run(box, {array})[0].to_vector<float>();
    for (int64_t i = 0; i < 8; ++i) {
      for (int64_t j = 0; j < 32; ++j) {
        const bool inside = i + 4 < r && j + 16 < c;
        ASSERT_EQ(got[static_cast<size_t>(i * 32 + j)],
                  inside ? static_cast<float>((i + 4) * c + j + 16) : 0)
            << i << " " << j;
      }
    }
  };
  for (const auto& [r, c] :
       {std::pair<int64_t, int64_t>{20, 64}, {7, 64}, {20, 20}, {3, 4}, {20, 64}}) {
    const Array a = Array::from(counting(r * c), {r, c}, gpu_);
    const Array b = Array::from(counting(r * c), {r, c}, gpu_);
    check(r, c, a);
    check(r, c, b);
    check(r, c, b);
  }
  if (fake_cuda()) {
    EXPECT_EQ(fake_cuda()->calls["cuTensorMapEncodeTiled"], 10);
  }
}

TEST_F(Cuda, RefusesWhatTheGpuCannotRun) {
  const auto refusal = [&](GpuMaker m) { return error_of([&] { m.load(gpu_); }); };
  const auto changed = [&](auto change) {
    GpuMaker m = gpu_add_program();
    change(*m.program);
    return refusal(std::move(m));
  };
  EXPECT_THAT(changed([](Program& p) { p.artifacts[0].code = "garbage"; }),
              AllOf(StartsWith("cuda-failed"), HasSubstr("@add")));
  EXPECT_THAT(changed([](Program& p) { p.artifacts[0].entry_names = {"nothing_p0"}; }),
              AllOf(StartsWith("malformed-program"), HasSubstr("\"nothing_p0\"")));
  EXPECT_THAT(changed([](Program& p) { p.artifacts[0].entry_names = {}; }),
              StartsWith("malformed-program"));
  EXPECT_THAT(changed([](Program& p) {
                p.artifacts[0].format = "image";
                p.artifacts[0].entries = {0};
              }),
              AllOf(StartsWith("unsupported-program"), HasSubstr("\"cubin\"")));
  EXPECT_THAT(changed([](Program& p) { p.target = *find_target("x86-64-v3"); }),
              AllOf(StartsWith("unsupported-program"), HasSubstr("x86-64-v3")));
  EXPECT_THAT(changed([](Program& p) { p.target = *find_target("sim:sm_90a"); }),
              AllOf(StartsWith("unsupported-program"), HasSubstr("sim:sm_90a")));
  EXPECT_THAT(changed([](Program& p) { p.launches[0].gpu[0].shared_bytes = 1 << 20; }),
              AllOf(StartsWith("unsupported-program"), HasSubstr("1.0 MiB of shared memory"),
                    HasSubstr("model.cpp:7")));
  for (const int64_t block : {0, 1025, -1}) {
    EXPECT_THAT(changed([&](Program& p) { p.launches[0].gpu[0].block = block; }),
                StartsWith("malformed-program"));
  }
  if (fake_cuda()) {
    EXPECT_THAT(changed([](Program& p) { p.launches[0].gpu[0].block = 1024; }),
                AllOf(StartsWith("unsupported-program"), HasSubstr("128 registers"),
                      HasSubstr("only 512")));
  }
  EXPECT_THAT(changed([](Program& p) {
                p.launches[0].tensor_maps = {{.buffer = 0, .extents = {8}, .box = {7}}};
              }),
              AllOf(StartsWith("malformed-program"), HasSubstr("28 bytes")));
}

TEST_F(Cuda, LaunchesThatCannotBeAreErrorsOfTheCall) {
  const Expr n = symbol_n();
  GpuMaker m("wide");
  const uint32_t x = m.input("x", vector_type(n));
  const uint32_t y = m.output("y", vector_type(n));
  m.add(x, x, y, n).instances = {n * (int64_t{1} << 40)};
  const Array a = filled(4, 1, gpu_);
  EXPECT_THAT(error_of([&] { run(m.load(gpu_), {a})[0].wait(); }),
              AllOf(StartsWith("unsupported-program"), HasSubstr("4398046511104 blocks"),
                    HasSubstr("kernel @add"), HasSubstr("model.cpp:7")));
  EXPECT_THAT(run(gpu_add_program().load(gpu_), {a, a})[0].to_vector<float>(), Each(2.f));
  EXPECT_THAT(error_of([&] { synchronize(gpu_); }), HasSubstr("4398046511104 blocks"));
  synchronize(gpu_);
}

// --- Recorded calls ---

/// w = 16 x, in four launches, three through the arena.
Executable sixteen_program(const Device& device) {
  GpuMaker m("sixteen");
  const Expr n = symbol_n();
  const Expr bytes = 256 * ceildiv(4 * n, 256);
  uint32_t value = m.input("x", vector_type(n));
  for (int i = 0; i < 3; ++i) {
    const uint32_t twice = m.temporary("t", vector_type(n), i * bytes);
    m.add(value, value, twice, n);
    value = twice;
  }
  m.add(value, value, m.output("w", vector_type(n)), n);
  m.program->arena_bytes = 3 * bytes;
  return m.load(device);
}

TEST_F(Cuda, CallsThatComeAgainAreRepeatedAsOne) {
  const Executable sixteen = sixteen_program(gpu_);
  constexpr int kCalls = 60;
  for (int i = 0; i < kCalls; ++i) {
    const int64_t n = i % 3 == 2 ? 700 : 300;  // the same memory for another size
    const auto value = static_cast<float>(i);
    EXPECT_THAT(run(sixteen, {filled(n, value, gpu_)})[0].to_vector<float>(), Each(16 * value));
  }
  if (fake_cuda()) {
    std::map<std::string, int>& calls = fake_cuda()->calls;
    EXPECT_EQ(fake_cuda()->executed.size(), 4u * kCalls);
    EXPECT_GT(calls["cuGraphLaunch"], kCalls / 2);
    EXPECT_EQ(calls["cuLaunchKernelEx"],
              4 * (kCalls - calls["cuGraphLaunch"]) + 4 * calls["cuGraphInstantiateWithFlags"]);
  }
}

TEST_F(Cuda, RecordedCallsAreTimedOneByOneWhenAsked) {
  const Executable sixteen = sixteen_program(gpu_);
  const Array x = filled(100, 1, gpu_);
  for (int i = 0; i < 5; ++i) run(sixteen, {x});
  clear_launch_history();
  record_launches(true);
  run(sixteen, {x});
  record_launches(false);
  EXPECT_EQ(launch_history().size(), 4u);
  clear_launch_history();
}

TEST_F(Cuda, TimelineHasTheTimesOfTheDevice) {
  const Executable sixteen = sixteen_program(gpu_);
  const Array x = filled(100, 1, gpu_);
  // Recorded by now; under a timeline launches are made one by one all the same.
  for (int i = 0; i < 5; ++i) run(sixteen, {x});
  synchronize(gpu_);
  const std::string path = testing::TempDir() + "cuda-trace.json";
  const int64_t begun = trace::now();
  ASSERT_TRUE(start_trace(path));
  record_launches(true);
  clear_launch_history();
  const Array y = Array::from(counting(100), {100}, gpu_);
  for (int i = 0; i < 2; ++i) run(sixteen, {y})[0].to_vector<float>();
  synchronize(gpu_);
  const int64_t ended = trace::now();
  const uint64_t live = memory_stats(gpu_).live_bytes;
  record_launches(false);
  stop_trace();
  const std::vector<TraceEvent> events = read_trace(path);
  check_nesting(events);
  EXPECT_THAT(names_of(in_category(events, "launch")), SizeIs(8));
  const std::vector<TraceEvent> kernels = in_category(events, "kernel", "cuda:0");
  const std::vector<LaunchRecord> history = launch_history();
  ASSERT_EQ(kernels.size(), 8u);
  ASSERT_EQ(history.size(), 8u);
  for (size_t i = 0; i < kernels.size(); ++i) {
    EXPECT_TRUE(kernels[i].has(R"("ops":["add.1 : f32[n] at model.cpp:7"])")) << kernels[i].text;
    EXPECT_TRUE(kernels[i].has(R"("blocks":[1],"threads":[128])")) << kernels[i].text;
    EXPECT_NEAR(static_cast<double>(kernels[i].end - kernels[i].begin), 1e9 * history[i].seconds,
                2);
    if (fake_cuda()) continue;  // its time is another
    EXPECT_GE(kernels[i].begin, begun - 20'000) << kernels[i].text;
    EXPECT_LE(kernels[i].end, ended + 20'000) << kernels[i].text;
  }
  std::vector<std::string> copies;
  for (const TraceEvent& copy : in_category(events, "copy", "cuda:0")) {
    copies.push_back(copy.name);
    EXPECT_TRUE(copy.has(R"("bytes":400)")) << copy.text;
  }
  EXPECT_THAT(copies, testing::UnorderedElementsAre("from the host", "to the host", "to the host"));
  EXPECT_THAT(names_of(in_category(events, "trace", "cuda:0")), Contains("clocks aligned"));
  std::string last;
  for (const TraceEvent& event : in_category(events, "memory", "cuda:0"))
    if (event.phase == 'C') last = trace_value(event.text, "bytes");
  EXPECT_EQ(last, std::to_string(live));
  clear_launch_history();
  std::filesystem::remove(path);
}

TEST_F(Cuda, WhatCannotBeRecordedIsLaunched) {
  if (!fake_cuda()) GTEST_SKIP() << "needs the fake driver";
  const int graphs = fake_cuda()->live_graphs;
  for (const char* function :
       {"cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphInstantiateWithFlags"}) {
    const Executable sixteen = sixteen_program(gpu_);
    fake_cuda()->failures = {{function, {0, cuda::CUDA_ERROR_INVALID_VALUE}}};
    const Array x = filled(100, 1, gpu_);
    for (int i = 0; i < 5; ++i) {
      EXPECT_THAT(run(sixteen, {x})[0].to_vector<float>(), Each(16.f)) << function;
    }
  }
  fake_cuda()->failures.clear();
  EXPECT_EQ(fake_cuda()->live_graphs, graphs);
}

TEST_F(Cuda, AddressesThatNeverComeAgainAreNotRecordedForEver) {
  const Executable sixteen = sixteen_program(gpu_);
  std::vector<Array> kept;
  for (int i = 0; i < 400; ++i) {
    const Array x = filled(100, static_cast<float>(i), gpu_);
    for (int j = 0; j < 2; ++j) kept.push_back(run(sixteen, {x})[0]);
    if (i % 50 == 0) {
      EXPECT_THAT(kept.back().to_vector<float>(), Each(16.f * static_cast<float>(i)));
    }
  }
  if (fake_cuda()) {
    EXPECT_LE(fake_cuda()->calls["cuGraphInstantiateWithFlags"], 64);
  }
}

TEST_F(Cuda, ThreadsCopyWhileOthersRecord) {
  const Executable sixteen = sixteen_program(gpu_);
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        const auto value = static_cast<float>(t * 100 + i);
        const Floats w = run(sixteen, {filled(200 + t, value, gpu_)})[0].to_vector<float>();
        right += w == Floats(static_cast<size_t>(200 + t), 16 * value);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 400);
}

// --- Memory runs out ---

TEST_F(Cuda, ShortageOfMemoryLeavesEverythingAsItWas) {
  const Executable sum = gpu_add_program().load(gpu_);
  const Array x = filled(1000, 1, gpu_);
  const int64_t n = static_cast<int64_t>(CudaSystem::get().gpus()[0].memory_bytes / sizeof(float));
  EXPECT_THAT(error_of([&] { make_array(DType::F32, {n + 1}, gpu_, nullptr); }),
              AllOf(StartsWith("out-of-memory"), HasSubstr("cuda:0 has no ")));
  EXPECT_THAT(run(sum, {x, x})[0].to_vector<float>(), Each(2.f));
}

TEST_F(Cuda, ShortageFreesTheCacheFirst) {
  if (!fake_cuda()) GTEST_SKIP() << "needs the fake driver";
  empty_cache(gpu_);
  const auto most = static_cast<int64_t>(fake_cuda()->memory_bytes / sizeof(float));
  { const Array cached = make_array(DType::F32, {most / 4}, gpu_, nullptr); }
  { const Array cached = make_array(DType::F32, {most / 2}, gpu_, nullptr); }
  EXPECT_EQ(memory_stats(gpu_).cached_bytes, fake_cuda()->memory_bytes / 4 * 3);
  const Array large = make_array(DType::F32, {most / 16 * 15}, gpu_, nullptr);
  EXPECT_EQ(memory_stats(gpu_).cached_bytes, 0u);
}

/// Everything from loading to reading, with arrays of sizes that were not there before.
void work(const Device& device, int64_t n) {
  GpuMaker m = gpu_add_program();
  HostTensor one(DType::F32, {n});
  for (int64_t i = 0; i < n; ++i) one.set_double(i, 1);
  m.program->constants.push_back(std::make_shared<const HostTensor>(one));
  const uint32_t c = m.slot(Slot::Kind::Constant, 0, {DType::F32, {n}}, "one");
  m.add(c, c, m.output("w", {DType::F32, {n}}), n);
  const Executable sum = m.load(device);
  const Array x = filled(n, 1, device);
  const std::vector<Array> out = run(sum, {x, x});
  EXPECT_THAT(out[0].to_vector<float>(), Each(2.f));
  EXPECT_THAT(out[1].to_vector<float>(), Each(2.f));
  EXPECT_THAT(x.to_vector<float>(), Each(1.f));
}

TEST_F(Cuda, EveryCallMayFailOnce) {
  if (!fake_cuda()) GTEST_SKIP() << "needs the fake driver";
  FakeCuda& fake = *fake_cuda();
  work(gpu_, 1000);
  synchronize(gpu_);
  empty_cache(gpu_);
  const uint64_t live = memory_stats(gpu_).live_bytes;
  const int blocks = fake.live_blocks, modules = fake.live_modules;
  int failures = 0;
  for (const char* function : {"cuMemAlloc", "cuMemHostAlloc", "cuEventCreate", "cuEventRecord",
                               "cuModuleLoadDataEx", "cuLaunchKernelEx", "cuMemcpyHtoDAsync",
                               "cuMemcpyDtoHAsync", "cuStreamWaitEvent", "cuFuncGetAttribute"}) {
    for (int after = 0;; ++after) {
      fake.failures = {{function, {after, cuda::CUDA_ERROR_OUT_OF_MEMORY}}};
      const std::string error = error_of([&] { work(gpu_, 1000); });
      const bool reached =
          fake.failures[function].after < -1 || (fake.failures[function].after == -1);
      fake.failures.clear();
      error_of([&] { synchronize(gpu_); });  // forgets the error of the work
      if (!reached) {
        EXPECT_EQ(error, "") << function << " after " << after;
        break;
      }
      ++failures;
      EXPECT_THAT(error, StartsWith("out-of-memory: ")) << function << " after " << after;
      EXPECT_EQ(memory_stats(gpu_).live_bytes, live) << function << " after " << after;
      EXPECT_EQ(fake.live_modules, modules) << function << " after " << after;
      work(gpu_, 1000);
      synchronize(gpu_);
      empty_cache(gpu_);
      EXPECT_EQ(fake.live_blocks, blocks) << function << " after " << after;
    }
  }
  EXPECT_GT(failures, 15);
}

// --- Kernels that fault ---

/// In a child process: a GPU that faulted is lost to its process.
void fault_and_tell() {
  const Device gpu("cuda:0");
  const Executable sum = gpu_add_program().load(gpu);
  const Array x = filled(100, 1, gpu);
  run(sum, {x, x})[0].wait();
  GpuMaker m("bad", {});
  m.kernel(kPlainPtx, "fault", {m.output("y", vector_type(1))}, {}, 1);
  const Executable bad = m.load(gpu);
  const Array y = run(bad, {})[0];
  const auto names_it =
      AllOf(StartsWith("kernel-fault"), HasSubstr("cuda:0"), HasSubstr("in kernel @fault"),
            HasSubstr("model.cpp:7"), HasSubstr("BRAZE_SYNC_LAUNCHES"));
  EXPECT_THAT(error_of([&] { y.to_vector<float>(); }), names_it);
  EXPECT_THAT(error_of([&] { y.wait(); }), names_it) << "again";
  EXPECT_THAT(error_of([&] { x.to_vector<float>(); }), names_it) << "another array";
  EXPECT_THAT(error_of([&] { run(sum, {x, x})[0].wait(); }), names_it) << "another call";
  EXPECT_THAT(error_of([&] { filled(1 << 20, 1, gpu); }), names_it) << "another allocation";
  EXPECT_THAT(error_of([&] { synchronize(gpu); }), names_it);
  EXPECT_THAT(filled(10, 1, "cpu").to_vector<float>(), Each(1.f));
  if (device_count(DeviceKind::Cuda) > 1) {
    const Array there = filled(100, 1, "cuda:1");
    EXPECT_THAT(run(gpu_add_program().load("cuda:1"), {there, there})[0].to_vector<float>(),
                Each(2.f));
  }
}

TEST_F(Cuda, FaultsNameTheKernelAndLeaveOtherDevices) {
  EXPECT_EXIT(
      {
        fault_and_tell();
        std::exit(testing::Test::HasFailure());
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(Cuda, FaultsNameAllKernelsThatMayBeAtFault) {
  EXPECT_EXIT(
      {
        GpuMaker m("bad");
        const Expr n = symbol_n();
        const uint32_t x = m.input("x", vector_type(n));
        m.kernel(kPlainPtx, "fault", {m.output("y", vector_type(1))}, {}, 1);
        m.add(x, x, m.output("z", vector_type(n)), n);
        const auto out = run(m.load(gpu_), {filled(100, 1, gpu_)});
        const std::string error = error_of([&] { out[1].wait(); });
        EXPECT_THAT(error, AllOf(HasSubstr("one of the last 2 kernels"), HasSubstr("@fault"),
                                 HasSubstr("@add")));
        std::exit(testing::Test::HasFailure());
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(Cuda, FaultsAreFoundAtOnceWhereAsked) {
  EXPECT_EXIT(
      {
        setenv(kEnvSyncLaunches.name, "1", 1);
        GpuMaker m("bad");
        const Expr n = symbol_n();
        const uint32_t x = m.input("x", vector_type(n));
        m.kernel(kPlainPtx, "fault", {m.output("y", vector_type(1))}, {}, 1);
        m.add(x, x, m.output("z", vector_type(n)), n);
        const auto out = run(m.load(gpu_), {filled(100, 1, gpu_)});
        EXPECT_THAT(error_of([&] { out[1].wait(); }), HasSubstr("in kernel @fault"));
        std::exit(testing::Test::HasFailure());
      },
      testing::ExitedWithCode(0), "");
}

// --- Two GPUs ---

TEST_F(Cuda, PeersCopyToOneAnother) {
  if (device_count(DeviceKind::Cuda) < 2) GTEST_SKIP() << "one CUDA device only";
  const Device there("cuda:1");
  const Executable here_sum = gpu_add_program().load(gpu_);
  const Executable there_sum = gpu_add_program().load(there);
  for (const int64_t n : {1, 1000, 1 << 20}) {
    Array a = Array::from(counting(n), {n}, gpu_);
    // Sources and results are dropped at once, so that their memory is wanted again.
    for (int i = 0; i < 4; ++i) {
      const Array b = run(here_sum, {a, a})[0].to(there);
      EXPECT_EQ(b.device(), there);
      a = run(there_sum, {b, b})[0].to(gpu_);
    }
    const Floats got = a.to_vector<float>();
    for (int64_t i = 0; i < n; i += 997) {
      EXPECT_EQ(got[static_cast<size_t>(i)], 256.f * static_cast<float>(i));
    }
  }
  const Array x = filled(3, 1, gpu_);
  EXPECT_THAT(error_of([&] {
                run(there_sum, {x, x});
              }),
              AllOf(StartsWith("device-mismatch"), HasSubstr("cuda:0"), HasSubstr("cuda:1")));
}

TEST_F(Cuda, PeersRespectWhatElseUsesTheMemory) {
  if (device_count(DeviceKind::Cuda) < 2) GTEST_SKIP() << "one CUDA device only";
  const Device there("cuda:1");
  const Executable there_sum = gpu_add_program().load(there);
  constexpr int64_t kCount = 1 << 20;
  // The source's memory is written anew while the copy may be under way.
  Array source = filled(kCount, 1, gpu_);
  const Array copied = source.to(there);
  source = Array();
  source = filled(kCount, 2, gpu_);
  synchronize(gpu_);
  EXPECT_THAT(copied.to_vector<float>(), Each(1.f));
  // The destination's memory is still read by what was enqueued there before.
  Array operand = filled(kCount, 3, there);
  const Array sum = run(there_sum, {operand, operand})[0];
  operand = Array();
  operand = source.to(there);
  synchronize(gpu_);
  EXPECT_THAT(sum.to_vector<float>(), Each(6.f));
  EXPECT_THAT(operand.to_vector<float>(), Each(2.f));
}

// --- Time ---

TEST_F(Cuda, SpeedOfMemoryIsMeasured) {
  const Target& nominal = gpu_.target();
  if (fake_cuda()) {
    EXPECT_EQ(measure_speeds(gpu_), nominal) << "not enough memory";
    fake_cuda()->memory_bytes = 1 << 30;
  }
  const Target measured = measure_speeds(gpu_);
  if (fake_cuda()) {
    fake_cuda()->memory_bytes = 256 << 20;
    EXPECT_DOUBLE_EQ(measured.memory_bytes_per_second, 2.0 * (256 << 20) / 0.25e-3);
  } else {
    EXPECT_GT(measured.memory_bytes_per_second, 0.5 * nominal.memory_bytes_per_second);
    EXPECT_LT(measured.memory_bytes_per_second, 1.1 * nominal.memory_bytes_per_second);
  }
  EXPECT_EQ(measured.flops_per_second, nominal.flops_per_second);
  empty_cache(gpu_);
}

/// Seconds of the host for one call, the best of some rounds.
double host_cost(const Executable& executable, const std::vector<Array>& arguments) {
  double best = 1;
  for (int round = 0; round < 20; ++round) {
    synchronize(executable.device());
    const auto start = std::chrono::steady_clock::now();
    // Fewer than fill the driver's queue.
    for (int i = 0; i < 200; ++i) executable.run(arguments);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    best = std::min(best, taken.count() / 200);
  }
  return best;
}

TEST_F(Cuda, HostCostOfACall) {
  const Array x = filled(1000, 1, gpu_);
  const double one = host_cost(gpu_add_program().load(gpu_), {x, x});
  const double four = host_cost(sixteen_program(gpu_), {x});
  std::printf("host cost of a call: %.2f us with one launch, %.2f us with four\n", one * 1e6,
              four * 1e6);
  if (!fake_cuda()) {
    EXPECT_LT(one, 20e-6);
    EXPECT_LT(four, 20e-6);
  }
}

}  // namespace
}  // namespace braze::test

int main(int count, char** arguments) {
  testing::InitGoogleTest(&count, arguments);
  // Children begin anew: nothing of a GPU outlives a fork.
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  return RUN_ALL_TESTS();
}
