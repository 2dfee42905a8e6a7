// cuda_test.cpp — what the tests on "cuda:0" share.
#include <dlfcn.h>

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
