// device_test.cpp — arrays, calls, the order of the queue, launches, speed, another GPU.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "ir/values/host_tensor.h"
#include "runtime/devices/cuda/driver_api.h"
#include "runtime/profile/speeds.h"
#include "tests/runtime/cuda/cuda_test.h"

namespace braze::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

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

// Two additions in one launch, also when the call is repeated as a graph.
TEST_F(Cuda, MembersOfALaunch) {
  GpuMaker m("sums");
  const Expr n = symbol_n();
  const uint32_t x = m.input("x", vector_type(n)), y = m.input("y", vector_type(n)),
                 z = m.output("z", vector_type(n)), w = m.output("w", vector_type(n)),
                 v = m.output("v", vector_type(n));
  Launch& sums = m.kernel(kPlainPtx, "add_all", {x, y, z, x, x, w}, {n}, ceildiv(n, kThreads));
  sums.members = {"add", "add_1"};
  for (const uint32_t from : {y, z}) m.add(from, w, v, n);
  const Executable executable = m.load(gpu_);
  const Array a = Array::from(counting(300), {300}, gpu_), b = filled(300, 0.5f, gpu_);
  for (int round = 0; round < 4; ++round) {
    const auto out = run(executable, {a, b});
    const Floats sum = out[0].to_vector<float>(), twice = out[1].to_vector<float>(),
                 last = out[2].to_vector<float>();
    for (size_t i = 0; i < sum.size(); ++i) {
      ASSERT_EQ(sum[i], static_cast<float>(i) + 0.5f);
      ASSERT_EQ(twice[i], static_cast<float>(2 * i));
      ASSERT_EQ(last[i], sum[i] + twice[i]);
    }
  }
  m.program->launches[0].buffers.pop_back();
  EXPECT_THAT(error_of([&] { m.load(gpu_); }), HasSubstr("equally many buffers"));
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

// --- Launches ---

#define SKIP_UNLESS_HOPPER() \
  if (!is_hopper()) GTEST_SKIP() << "cuda:0 has not the compute capability 9.0"

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
}

TEST_F(Cuda, DriverSeesTheShapeOfTheLaunch) {
  if (!fake_cuda()) GTEST_SKIP() << "needs the fake driver";
  GpuMaker m("ranks", {}, "sm_90a");
  const uint32_t y = m.output("y", vector_type(12)), z = m.output("z", vector_type(3));
  m.kernel(kHopperPtx, "rank", {y}, {}, 3, {.block = 1, .shared_bytes = 100'000, .cluster = 4});
  m.kernel(kHopperPtx, "rank", {z}, {}, 3, {.block = 1, .resident = true, .overlaps = true});
  run(m.load(gpu_), {})[1].wait();
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

TEST_F(Cuda, NoLaunchOverlapsIfTheEnvironmentForbidsIt) {
  if (!fake_cuda()) GTEST_SKIP() << "needs the fake driver";
  GpuMaker m("ranks", {}, "sm_90a");
  const uint32_t z = m.output("z", vector_type(3));
  m.kernel(kHopperPtx, "rank", {z}, {}, 3, {.block = 1, .overlaps = true});
  setenv("BRAZE_OVERLAP", "0", 1);
  run(m.load(gpu_), {})[0].wait();
  unsetenv("BRAZE_OVERLAP");
  EXPECT_FALSE(fake_cuda()->launches.at(0).overlaps);
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

// --- Speed ---

TEST_F(Cuda, SpeedOfMemoryIsMeasured) {
  const Target& nominal = gpu_.target();
  if (fake_cuda()) {
    EXPECT_EQ(measure_speeds(gpu_).copy_bytes_per_second, nominal.memory_bytes_per_second)
        << "not enough memory";
    fake_cuda()->memory_bytes = 1 << 30;
  }
  const Speeds measured = measure_speeds(gpu_);
  const double near = 1e6 / least_seconds(gpu_, 5e5, 5e5), far = 1e9 / least_seconds(gpu_, 1e9, 0);
  if (fake_cuda()) {
    fake_cuda()->memory_bytes = 256 << 20;
    EXPECT_DOUBLE_EQ(measured.copy_bytes_per_second, 2.0 * (256 << 20) / 0.25e-3);
    EXPECT_DOUBLE_EQ(near, 2.0 * (16 << 20) / 0.25e-3) << "of copies that are long enough";
    EXPECT_DOUBLE_EQ(far, measured.copy_bytes_per_second);
  } else {
    EXPECT_GT(measured.copy_bytes_per_second, 0.5 * nominal.memory_bytes_per_second);
    EXPECT_LT(measured.copy_bytes_per_second, 1.1 * nominal.memory_bytes_per_second);
    EXPECT_NEAR(far, measured.copy_bytes_per_second, 0.1 * far);
    // A copy of 0.5 MB within the caches is short beside a launch: more is not known of it.
    EXPECT_GT(near, 0.1 * far) << "of what its caches hold";
  }
  EXPECT_EQ(measured.flops_per_second, nominal.flops_per_second);
  empty_cache(gpu_);
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

}  // namespace
}  // namespace braze::test
