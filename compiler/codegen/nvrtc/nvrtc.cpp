// nvrtc.cpp — compiles CUDA C++ to PTX by NVRTC, which is opened at run time from declarations of
// our own.
#include <dlfcn.h>

#include <cstdlib>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "braze/trace.h"
#include "compiler/codegen/code_generator.h"
#include "compiler/codegen/ptx_assembler.h"
#include "ir/support/clocks.h"
#include "ir/support/text.h"

namespace braze {

namespace {

// Functions as NVRTC's documentation declares them. All but the last return 0 for success.
struct NvrtcApi {
  using Program = void*;
  int (*version)(int* major, int* minor) = nullptr;
  int (*create)(Program*, const char* source, const char* name, int headers,
                const char* const* texts, const char* const* names) = nullptr;
  int (*destroy)(Program*) = nullptr;
  int (*compile)(Program, int count, const char* const* options) = nullptr;
  int (*ptx_size)(Program, size_t*) = nullptr;
  int (*ptx)(Program, char*) = nullptr;
  int (*log_size)(Program, size_t*) = nullptr;
  int (*log)(Program, char*) = nullptr;
  const char* (*error_text)(int) = nullptr;

  int major = 0, minor = 0;
};

void* open_library() {
  std::vector<std::string> folders = {library_folder().string() + "/", ""};
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* home = std::getenv(variable)) {
      folders.push_back(std::string(home) + "/lib64/");
      folders.push_back(std::string(home) + "/lib/");
    }
  folders.insert(folders.end(), {"/usr/local/cuda/lib64/", "/usr/local/cuda/lib/"});
  for (const std::string& folder : folders)
    for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"})
      if (void* library = dlopen((folder + name).c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  return nullptr;
}

std::string path_of(const NvrtcApi& api) {
  Dl_info library{};
  return dladdr(reinterpret_cast<const void*>(api.create), &library) ? library.dli_fname : "";
}

// NVRTC opens a second library by its name alone, where the system looks for libraries. A library
// that lies beside NVRTC is found if it is already loaded.
void load_builtins(const NvrtcApi& api) {
  const std::string path = path_of(api);
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  const auto name = fmt::format("libnvrtc-builtins.so.{}.{}", api.major, api.minor);
  if (!folder.empty()) dlopen((folder + name).c_str(), RTLD_NOW | RTLD_LOCAL);
}

std::unique_ptr<const NvrtcApi> load() {
  void* library = open_library();
  if (!library) return nullptr;
  auto api = std::make_unique<NvrtcApi>();
  bool complete = true;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
    complete &= function != nullptr;
  };
  find(api->version, "nvrtcVersion");
  find(api->create, "nvrtcCreateProgram");
  find(api->destroy, "nvrtcDestroyProgram");
  find(api->compile, "nvrtcCompileProgram");
  find(api->ptx_size, "nvrtcGetPTXSize");
  find(api->ptx, "nvrtcGetPTX");
  find(api->log_size, "nvrtcGetProgramLogSize");
  find(api->log, "nvrtcGetProgramLog");
  find(api->error_text, "nvrtcGetErrorString");
  if (!complete || api->version(&api->major, &api->minor) != 0) return nullptr;
  load_builtins(*api);
  return api;
}

const NvrtcApi* nvrtc() {
  static const std::unique_ptr<const NvrtcApi> api = load();
  return api.get();
}

const NvrtcApi& require_nvrtc() {
  if (const NvrtcApi* api = nvrtc()) return *api;
  fail(codes::kNvrtcMissing, "libnvrtc.so cannot be loaded on this machine",
       {.location = {},
        .node = "",
        .fix = "install NVRTC (from the CUDA toolkit, or the wheel nvidia-cuda-nvrtc), or use "
               "--codegen ptx, which does not need it"});
}

// Reads a text from NVRTC. The size that NVRTC gives includes the zero at the end.
std::string read_text(NvrtcApi::Program program, int (*size_of_text)(NvrtcApi::Program, size_t*),
                      int (*read)(NvrtcApi::Program, char*)) {
  size_t size = 0;
  if (size_of_text(program, &size) != 0 || size == 0) return {};
  std::string text(size, '\0');
  if (read(program, text.data()) != 0) return {};
  text.resize(size - 1);
  return text;
}

}  // namespace

std::string nvrtc_name() {
  const NvrtcApi* api = nvrtc();
  return api ? fmt::format("NVRTC {}.{}", api->major, api->minor) : std::string();
}

std::string nvrtc_identity() {
  const NvrtcApi* api = nvrtc();
  if (!api) return "none";
  return fmt::format("{}, {}", nvrtc_name(), file_identity(path_of(*api)));
}

std::string nvrtc_ptx(const Kernel& kernel, const Target& target, CodegenTimes* times) {
  const NvrtcApi& api = require_nvrtc();
  CodegenTimes spent;
  const TraceSpan span("codegen", "compile by", nvrtc_name());
  WallClock clock;
  const std::string source = cuda_text(kernel);
  spent.translate = clock.lap();
  NvrtcApi::Program program = nullptr;
  const std::string file = kernel.name + ".cu";
  int status = api.create(&program, source.c_str(), file.c_str(), 0, nullptr, nullptr);
  if (status != 0) fail(codes::kNvrtcRefused, api.error_text(status));
  const auto destroy = [&api](NvrtcApi::Program* p) { api.destroy(p); };
  const std::unique_ptr<NvrtcApi::Program, decltype(destroy)> owner(&program, destroy);
  // "sm_90a" is the machine and "compute_90a" its PTX. The kernel determines all rounding.
  const std::string architecture = "--gpu-architecture=compute_" + target.name.substr(3);
  const char* options[] = {architecture.c_str(), "--fmad=false", "--prec-div=true",
                           "--prec-sqrt=true",   "--ftz=false",  "--generate-line-info",
                           "--disable-warnings"};
  status = api.compile(program, std::size(options), options);
  if (status != 0)
    fail(codes::kNvrtcRefused,
         fmt::format("{} refused kernel @{} ({}): {}", nvrtc_name(), kernel.name,
                     api.error_text(status), read_text(program, api.log_size, api.log)),
         {.location = {}, .node = "", .fix = "please report this"});
  std::string ptx = read_text(program, api.ptx_size, api.ptx);
  spent.emit = clock.lap();
  if (times) *times = spent;
  return ptx;
}

}  // namespace braze
