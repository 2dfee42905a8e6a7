#include "runtime/devices/cuda/nccl.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <type_traits>

#include "ir/support/env.h"

namespace braze::cuda {

namespace {

constexpr const char* kLibrary = "libnccl.so.2";

OpenedNccl missing(std::string why) { return {nullptr, 0, {}, std::move(why)}; }

OpenedNccl from_handle(void* handle, const std::string& library) {
  NcclApi api;
  const char* absent = nullptr;
  const auto load = [&](const char* name, auto& function, bool optional) {
    void* const address = dlsym(handle, name);
    if (!address && !absent && !optional) absent = name;
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
  };
#define FUNCTION(member, name, version, ...) load(#name, api.member, false);
#define OPTIONAL(member, name, version, ...) load(#name, api.member, true);
#include "runtime/devices/cuda/nccl.def"
  int version = 0;
  if (!api.get_version || api.get_version(&version) != ncclSuccess)
    return missing(fmt::format("{} is no NCCL", library));
  if (version < kOldestNccl)
    return missing(fmt::format("{} is NCCL {}, and {} or newer is needed", library,
                               nccl_version_text(version), nccl_version_text(kOldestNccl)));
  if (absent)
    return missing(fmt::format("{}, NCCL {}, lacks the function {}", library,
                               nccl_version_text(version), absent));
  Dl_info where{};
  const bool known = dladdr(reinterpret_cast<void*>(api.get_version), &where) && where.dli_fname;
  return {std::make_unique<const NcclApi>(api), version, known ? where.dli_fname : library, ""};
}

OpenedNccl find_nccl() {
  // Multicast through NVLink switches adds in another order. A user who wants it must set the
  // variable. NCCL reads it once, for the first communicator of the process, so this also serves
  // where somebody else has loaded NCCL and not made a communicator yet.
  setenv("NCCL_NVLS_ENABLE", "0", /*overwrite=*/0);
  if (void* const handle = dlopen(kLibrary, RTLD_NOW | RTLD_NOLOAD))
    return from_handle(handle, kLibrary);
  if (const auto given = read_env(kEnvNccl)) return open_nccl(*given);
  std::vector<std::string> libraries = nccl_in_site_packages();
  libraries.insert(libraries.begin(), kLibrary);
  return open_first_nccl(libraries);
}

}  // namespace

OpenedNccl open_nccl(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) return missing(fmt::format("NCCL cannot be opened: {}", dlerror()));
  return from_handle(handle, library);
}

OpenedNccl open_first_nccl(std::span<const std::string> libraries) {
  std::string refused;  // those that are there and cannot be used
  for (const std::string& library : libraries) {
    void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) continue;
    OpenedNccl opened = from_handle(handle, library);
    if (opened.api) return opened;
    dlclose(handle);
    refused += fmt::format("{}; ", opened.missing);
  }
  return missing(
      fmt::format("{}no {} that can be used is in this process, in the library path or in Python's "
                  "site-packages; `pip install nvidia-nccl-cu12` has one, and {} names its file",
                  refused, kLibrary, kEnvNccl.name));
}

const OpenedNccl& nccl() {
  static const auto* const opened = new OpenedNccl(find_nccl());
  return *opened;
}

std::string nccl_version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::vector<std::string> nccl_in_site_packages() {
  namespace fs = std::filesystem;
  std::vector<fs::path> roots;
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const char* prefix = std::getenv(variable)) roots.emplace_back(fs::path(prefix) / "lib");
  if (const char* home = std::getenv("HOME")) roots.emplace_back(fs::path(home) / ".local/lib");
  for (const char* root : {"/usr/local/lib", "/usr/lib", "/opt/conda/lib"})
    roots.emplace_back(root);
  std::vector<std::string> found;
  for (const fs::path& root : roots) {
    std::error_code error;
    std::vector<fs::path> pythons;
    for (fs::directory_iterator it(root, error), end; !error && it != end; it.increment(error))
      if (it->path().filename().string().starts_with("python3")) pythons.push_back(it->path());
    std::ranges::sort(pythons, std::greater<>());
    for (const fs::path& python : pythons) {
      for (const char* packages : {"site-packages", "dist-packages"}) {
        const fs::path file = python / packages / "nvidia/nccl/lib" / kLibrary;
        if (fs::exists(file, error)) found.push_back(file);
      }
    }
  }
  return found;
}

}  // namespace braze::cuda
