#include "runtime/devices/cuda/nccl.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace braze::cuda {

std::string nccl_version() {
  void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (!library) return {};
  int version = 0;
  const auto get = reinterpret_cast<int (*)(int*)>(dlsym(library, "ncclGetVersion"));
  if (!get || get(&version) != 0) return {};
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace braze::cuda
