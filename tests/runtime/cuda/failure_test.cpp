// failure_test.cpp — memory that runs out, calls of the driver that fail, kernels that fault.
#include <cstdlib>

#include "ir/values/host_tensor.h"
#include "runtime/memory/array_state.h"
#include "tests/runtime/cuda/cuda_test.h"

namespace braze::test {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

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
    // Drivers differ in whether other GPUs of the process go on; those that do not are told why.
    const std::string error = error_of([] {
      const Array there = filled(100, 1, "cuda:1");
      EXPECT_THAT(run(gpu_add_program().load("cuda:1"), {there, there})[0].to_vector<float>(),
                  Each(2.f));
    });
    EXPECT_THAT(error,
                AnyOf(IsEmpty(), AllOf(StartsWith("kernel-fault"), HasSubstr("cuda:1 failed"),
                                       HasSubstr("in kernel @fault"))));
    if (testing::Test::HasFailure()) std::cerr << error;  // all that a death test shows
  }
}

TEST_F(Cuda, FaultsNameTheKernelAndLeaveTheCpu) {
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

}  // namespace
}  // namespace braze::test
