// cuda_test.h — the fixture of tests on the device "cuda:0" through the runtime's own interfaces:
// on a GPU where there is one, on the fake driver where BRAZE_CUDA_DRIVER names it, else skipped.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "ir/support/env.h"
#include "runtime/devices/cuda/cuda_system.h"
#include "tests/runtime/cuda/fake_cuda.h"
#include "tests/runtime/cuda/kernels.h"

namespace braze::test {

using Floats = std::vector<float>;

inline std::vector<Array> run(const Executable& executable, std::vector<Array> arguments) {
  return executable.run(arguments);
}

inline Floats counting(int64_t n) {
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
    // Children begin anew: nothing of a GPU outlives a fork.
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
  void TearDown() override {
    if (fake_cuda()) {
      EXPECT_THAT(fake_cuda()->misuse, testing::IsEmpty());
      fake_cuda()->reset();
    }
  }

  static bool is_hopper() { return CudaSystem::get().gpus()[0].major == 9; }

  const Device gpu_ = CudaSystem::get().missing().empty() ? Device("cuda:0") : Device();
};

}  // namespace braze::test
