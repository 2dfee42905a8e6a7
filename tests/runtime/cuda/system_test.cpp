// What needs no device: opening drivers, targets, tensor maps, text.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/devices/cuda/cuda_system.h"
#include "runtime/devices/cuda/tensor_map.h"
#include "tests/runtime/cuda/fake_cuda.h"
#include "tests/runtime/cuda/kernels.h"

namespace braze::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::IsEmpty;

/// A fake driver of its own, which this process uses for nothing else.
FakeCuda& fake() {
  static FakeCuda* const state = [] {
    void* const handle = dlopen(BRAZE_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
    if (!handle) throw std::runtime_error(dlerror());
    return reinterpret_cast<FakeCuda* (*)()>(dlsym(handle, "braze_fake_cuda"))();
  }();
  return *state;
}

std::string missing(const std::function<void(FakeCuda&)>& change) {
  const FakeCuda before = fake();
  change(fake());
  const CudaSystem system(BRAZE_FAKE_CUDA);
  fake() = before;
  EXPECT_EQ(system.missing().empty(), system.api() != nullptr);
  EXPECT_EQ(system.missing().empty(), !system.gpus().empty());
  return system.missing();
}

TEST(CudaSystem, SaysWhatIsMissing) {
  EXPECT_THAT(CudaSystem("libnothing.so.1").missing(),
              AllOf(HasSubstr("there is no CUDA driver here"), HasSubstr("libnothing.so.1")));
  EXPECT_THAT(CudaSystem("libc.so.6").missing(), HasSubstr("12.0 or newer is needed"));
  EXPECT_EQ(missing([](FakeCuda& f) { f.version = 11040; }),
            "the CUDA driver serves CUDA 11.4, but 12.0 or newer is needed");
  EXPECT_EQ(missing([](FakeCuda& f) { f.devices = 0; }), "the CUDA driver finds no GPU");
  EXPECT_EQ(missing([](FakeCuda& f) { f.init_result = cuda::CUDA_ERROR_NO_DEVICE; }),
            "the CUDA driver finds no GPU");
  EXPECT_THAT(missing([](FakeCuda& f) { f.init_result = cuda::CUDA_ERROR_STUB_LIBRARY; }),
              HasSubstr("stub of a CUDA toolkit"));
  EXPECT_THAT(missing([](FakeCuda& f) { f.init_result = cuda::CUDA_ERROR_ECC_UNCORRECTABLE; }),
              AllOf(HasSubstr("does not start"), HasSubstr("CUDA_ERROR_ECC_UNCORRECTABLE")));
  EXPECT_EQ(missing([](FakeCuda&) {}), "");
}

TEST(CudaSystem, KnowsTheGpus) {
  const CudaSystem system(BRAZE_FAKE_CUDA);
  EXPECT_EQ(system.driver_version(), "12.4");
  ASSERT_EQ(system.gpus().size(), 2u);
  const GpuFacts& gpu = system.gpus()[1];
  EXPECT_EQ(gpu.name, "Fake GPU");
  EXPECT_EQ(capability_text(gpu), "9.0");
  EXPECT_EQ(gpu.memory_bytes, 256u << 20);
  EXPECT_EQ(system.first_usable(), 0);
}

TEST(GpuTarget, IsChosenByTheComputeCapability) {
  GpuFacts gpu{.name = "G",
               .major = 9,
               .minor = 0,
               .memory_bytes = 80u << 30,
               .multiprocessors = 132,
               .block_shared_bytes = 227 << 10,
               .shared_bytes = 228 << 10,
               .l2_bytes = 50 << 20,
               .clock_hz = 1.98e9,
               .memory_bytes_per_second = 3.35e12};
  const auto row = [&](int major, int minor) {
    gpu.major = major;
    gpu.minor = minor;
    const auto target = gpu_target(gpu);
    return target ? target->name : "none";
  };
  EXPECT_EQ(row(7, 5), "none");
  EXPECT_EQ(row(8, 0), "sm_80");
  EXPECT_EQ(row(8, 9), "sm_80");
  EXPECT_EQ(row(9, 0), "sm_90a");
  EXPECT_EQ(row(10, 0), "sm_80") << "instructions of 9.0a are not those of its successors";
  EXPECT_EQ(row(12, 0), "sm_80");
  gpu.major = 9;
  Target expected = *find_target("sm_90a");
  expected.memory_bytes_per_second = 3.35e12;
  expected.flops_per_second = 132 * 128 * 2 * 1.98e9;
  EXPECT_EQ(gpu_target(gpu), expected);
  gpu.clock_hz = gpu.memory_bytes_per_second = 0;
  EXPECT_EQ(gpu_target(gpu), find_target("sm_90a")) << "what the driver does not say";

  EXPECT_EQ(why_not(gpu, *find_target("sm_90a")), "");
  EXPECT_EQ(why_not(gpu, *find_target("sm_80")), "");
  EXPECT_THAT(why_not(gpu, *find_target("x86-64-v3")), HasSubstr("not for a GPU"));
  EXPECT_THAT(why_not(gpu, *find_target("sim:sm_90a")), HasSubstr("not for a GPU"));
  gpu.major = 8;
  EXPECT_THAT(why_not(gpu, *find_target("sm_90a")), HasSubstr("compute capability 8.0"));
  gpu.major = 7;
  EXPECT_THAT(why_not(gpu, *find_target("sm_80")), HasSubstr("below 8.0"));
}

TEST(TensorMap, BecomesArgumentsWithTheInnermostAxisFirst) {
  const Expr n = symbol_n();
  const TensorMapRecipe recipe{
      .buffer = 0, .dtype = DType::BF16, .extents = {n, 3, 24}, .box = {64, 1, 16}, .swizzle = 32};
  const int64_t extents[] = {100, 3, 24};
  EXPECT_EQ(tensor_map_fault(recipe), "");
  EXPECT_EQ(tensor_map_fault(recipe, extents), "");
  const TensorMapArguments a = tensor_map_arguments(recipe, extents);
  EXPECT_EQ(a.type, cuda::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
  EXPECT_EQ(a.rank, 3u);
  EXPECT_THAT(a.extents, ElementsAre(24, 3, 100, 0, 0));
  EXPECT_THAT(a.strides, ElementsAre(48, 144, 0, 0));
  EXPECT_THAT(a.box, ElementsAre(16, 1, 64, 0, 0));
  EXPECT_THAT(a.steps, ElementsAre(1, 1, 1, 0, 0));
  EXPECT_EQ(a.swizzle, cuda::CU_TENSOR_MAP_SWIZZLE_32B);
}

TEST(TensorMap, SaysWhatTheHardwareForbids) {
  const TensorMapRecipe good{.dtype = DType::F32, .extents = {8, 8}, .box = {8, 8}, .swizzle = 32};
  const auto fault = [&](auto change) {
    TensorMapRecipe recipe = good;
    change(recipe);
    return tensor_map_fault(recipe);
  };
  EXPECT_EQ(fault([](auto&) {}), "");
  EXPECT_THAT(fault([](auto& r) { r.extents = r.extents = {}; }), HasSubstr("0 axes"));
  EXPECT_THAT(fault([](auto& r) { r.extents.assign(6, 8); }), HasSubstr("6 axes"));
  EXPECT_THAT(fault([](auto& r) { r.box = {8}; }), HasSubstr("its box has 1 axes"));
  EXPECT_THAT(fault([](auto& r) { r.box = {257, 8}; }), HasSubstr("the extent 257"));
  EXPECT_THAT(fault([](auto& r) { r.box = {0, 8}; }), HasSubstr("the extent 0"));
  EXPECT_THAT(fault([](auto& r) { r.swizzle = 16; }), HasSubstr("its swizzle is 16"));
  EXPECT_THAT(fault([](auto& r) { r.box = {8, 6}; }), HasSubstr("24 bytes"));
  EXPECT_THAT(fault([](auto& r) { r.box = {8, 16}; }), HasSubstr("more than its swizzle 32"));
  using Extents = std::vector<int64_t>;
  EXPECT_EQ(tensor_map_fault(good, Extents{7, 12}), "");
  EXPECT_EQ(tensor_map_fault(good, Extents{7}), "") << "one axis has no stride";
  EXPECT_THAT(tensor_map_fault(good, Extents{7, 10}),
              HasSubstr("40 bytes, which is not a multiple of 16"));
  EXPECT_THAT(tensor_map_fault(good, Extents{7, (int64_t{1} << 32) + 4}), HasSubstr("4294967300"));
  EXPECT_THAT(tensor_map_fault(good, Extents{7, int64_t{1} << 31, int64_t{1} << 31}),
              HasSubstr("1099511627776"));
}

TEST(GpuProgram, TextShowsHowPhasesAreLaunched) {
  GpuMaker m("shown");
  const Expr n = symbol_n();
  const uint32_t x = m.input("x", {DType::BF16, {n, 64}});
  Launch& launch = m.kernel("", "tile", {x}, {}, ceildiv(n, 64),
                            {.block = 384, .shared_bytes = 229440, .cluster = 2, .resident = true});
  launch.tensor_maps = {
      {.dtype = DType::BF16, .extents = {n, 64}, .box = {128, 64}, .swizzle = 128}};
  EXPECT_THAT(to_text(*m.program),
              AllOf(HasSubstr("phase block 384 shared 229440 cluster 2 resident\n"),
                    HasSubstr("tensormap buffer 0: bf16[n, 64] box [128, 64] swizzle 128\n")));
}

}  // namespace
}  // namespace braze::test
