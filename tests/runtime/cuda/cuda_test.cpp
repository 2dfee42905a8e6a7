// cuda_test.cpp — what the tests on "cuda:0" share, and where they start.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "ir/support/env.h"
#include "runtime/devices/cuda/cuda_system.h"
#include "tests/runtime/cuda/fake_cuda.h"

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

}  // namespace braze::test

int main(int count, char** arguments) {
  testing::InitGoogleTest(&count, arguments);
  // Children begin anew: nothing of a GPU outlives a fork.
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  return RUN_ALL_TESTS();
}
