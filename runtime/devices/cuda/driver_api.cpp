#include "runtime/devices/cuda/driver_api.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>

namespace braze::cuda {

namespace {

// The form since CUDA 12.0. The function of older drivers has fewer parameters.
using GetProcAddress = CUresult (*)(const char* name, void** function, int version, uint64_t flags,
                                    int* status);
using DriverGetVersion = CUresult (*)(int* version);

template <class Function>
Function find(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

OpenedDriver missing(std::string why, int version = 0) {
  return {nullptr, version, std::move(why)};
}

/// The name of the first function that the driver does not have, if any.
const char* load_functions(GetProcAddress get, Api& api) {
  const char* absent = nullptr;
  const auto load = [&](const char* name, int version, auto& function) {
    void* address = nullptr;
    int status = 0;
    if (get(name, &address, version, 0, &status) != CUDA_SUCCESS || !address) {
      absent = absent ? absent : name;
    }
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
  };
#define FUNCTION(member, name, version, ...) load(#name, version, api.member);
#include "runtime/devices/cuda/driver_api.def"
  return absent;
}

std::string init_failure(const Api& api, CUresult result) {
  switch (result) {
    case CUDA_ERROR_NO_DEVICE:
      return "the CUDA driver finds no GPU";
    case CUDA_ERROR_STUB_LIBRARY:
      return "libcuda.so.1 is the stub of a CUDA toolkit, which stands before the driver's own in "
             "the library path";
    default:
      return fmt::format("the CUDA driver does not start: {}", error_text(api, result));
  }
}

}  // namespace

OpenedDriver open_driver(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) return missing(fmt::format("there is no CUDA driver here ({})", dlerror()));
  int version = 0;
  if (const auto get_version = find<DriverGetVersion>(handle, "cuDriverGetVersion")) {
    get_version(&version);
  }
  const auto get = find<GetProcAddress>(handle, "cuGetProcAddress_v2");
  if (!get || version < kOldestDriver) {
    return missing(fmt::format("the CUDA driver serves CUDA {}, but {} or newer is needed",
                               version_text(version), version_text(kOldestDriver)),
                   version);
  }
  auto api = std::make_unique<Api>();
  if (const char* absent = load_functions(get, *api)) {
    return missing(fmt::format("the CUDA driver, of CUDA {}, lacks the function {}",
                               version_text(version), absent),
                   version);
  }
  if (const CUresult result = api->init(0); result != CUDA_SUCCESS) {
    return missing(init_failure(*api, result), version);
  }
  return {std::move(api), version, ""};
}

std::string error_text(const Api& api, CUresult result) {
  const char* name = nullptr;
  const char* meaning = nullptr;
  api.get_error_name(result, &name);
  api.get_error_string(result, &meaning);
  if (!name) return fmt::format("CUDA error {}", static_cast<unsigned>(result));
  return meaning ? fmt::format("{} ({})", name, meaning) : std::string(name);
}

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace braze::cuda
