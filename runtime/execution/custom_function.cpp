#include "braze/custom_function.h"

#include <dlfcn.h>

#include <filesystem>

#include "braze/c.h"
#include "ir/graph/custom_calls.h"
#include "ir/support/text.h"

namespace braze {

namespace codes {
inline constexpr Code kBadCustomLibrary{"bad-custom-library", ErrorKind::InvalidArgument,
                                        "A library of functions for graphs cannot be loaded."};
inline constexpr Code kNoCustomLibrary{"no-custom-library", ErrorKind::NotFound,
                                       "A library of functions for graphs does not exist."};
}  // namespace codes

void register_custom_call(std::string name, DeviceKind kind, CustomFunction function) {
  if (kind != DeviceKind::Cpu && kind != DeviceKind::Cuda)
    fail(codes::kBadCustomFunction,
         fmt::format("{} is registered for a simulator or the interpreter", quote(name)),
         {.location = {},
          .node = name,
          .fix = "register it for DeviceKind::Cpu, whose functions these devices call"});
  add_custom_function(std::move(name),
                      kind == DeviceKind::Cpu ? CustomMemory::Host : CustomMemory::Cuda,
                      std::move(function));
}

void load_custom_calls(const std::string& path) {
  const auto refuse = [&](const std::string& why) {
    fail(codes::kBadCustomLibrary, fmt::format("{}: {}", path, why), {.node = path});
  };
  std::error_code error;
  // A name without a folder would be searched for in the folders of system libraries.
  const std::filesystem::path file = std::filesystem::absolute(path, error);
  if (error || !std::filesystem::exists(file, error))
    fail(codes::kNoCustomLibrary, fmt::format("{} does not exist", path), {.node = path});
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) refuse(dlerror());
  constexpr const char* kEntry = "braze_custom_calls";
  const auto entry = reinterpret_cast<braze_custom_library>(dlsym(library, kEntry));
  if (!entry)
    fail(codes::kBadCustomLibrary, fmt::format("{} has no function {}", path, kEntry),
         {.location = {},
          .node = path,
          .fix = "define it in C linkage, as braze/c.h describes braze_custom_library"});
  if (entry(braze_register_custom_call) != BRAZE_OK) refuse(braze_last_error());
}

}  // namespace braze
