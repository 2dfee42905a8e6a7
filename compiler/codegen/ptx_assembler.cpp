#include "compiler/codegen/ptx_assembler.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iomanip>
#include <memory>
#include <optional>
#include <sstream>

#include "ir/support/env.h"
#include "ir/support/text.h"

extern char** environ;

namespace braze {

namespace {

namespace fs = std::filesystem;

// --- The plugin ----------------------------------------------------------------------------------

// Functions as nvPTXCompiler's documentation declares them. All return 0 for success.
struct PluginApi {
  using Handle = void*;
  int (*get_version)(unsigned* major, unsigned* minor);
  int (*create)(Handle*, size_t length, const char* ptx);
  int (*destroy)(Handle*);
  int (*compile)(Handle, int count, const char* const* options);
  int (*program_size)(Handle, size_t*);
  int (*program)(Handle, void*);
  int (*error_size)(Handle, size_t*);
  int (*error)(Handle, char*);
  int (*info_size)(Handle, size_t*);
  int (*info)(Handle, char*);
};

constexpr const char* kPluginName = "libbraze-ptx.so";

std::optional<PluginApi> load_plugin() {
  const fs::path folder = library_folder();
  if (folder.empty()) return std::nullopt;
  void* library = dlopen((folder / kPluginName).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return std::nullopt;
  PluginApi api{};
  bool complete = true;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
    complete &= function != nullptr;
  };
  find(api.get_version, "nvPTXCompilerGetVersion");
  find(api.create, "nvPTXCompilerCreate");
  find(api.destroy, "nvPTXCompilerDestroy");
  find(api.compile, "nvPTXCompilerCompile");
  find(api.program_size, "nvPTXCompilerGetCompiledProgramSize");
  find(api.program, "nvPTXCompilerGetCompiledProgram");
  find(api.error_size, "nvPTXCompilerGetErrorLogSize");
  find(api.error, "nvPTXCompilerGetErrorLog");
  find(api.info_size, "nvPTXCompilerGetInfoLogSize");
  find(api.info, "nvPTXCompilerGetInfoLog");
  if (complete) return api;
  dlclose(library);
  return std::nullopt;
}

class Plugin : public PtxAssembler {
 public:
  explicit Plugin(const PluginApi& api) : api_(api) { api_.get_version(&major_, &minor_); }

  std::string name() const override { return fmt::format("nvPTXCompiler {}.{}", major_, minor_); }
  std::string identity() const override {
    return fmt::format("{}, {}", name(), file_identity(library_folder() / kPluginName));
  }
  bool is_in_process() const override { return true; }

 protected:
  Output run(const std::string& ptx, std::string_view architecture) const override {
    PluginApi::Handle handle = nullptr;
    if (api_.create(&handle, ptx.size(), ptx.c_str()) != 0)
      fail(codes::kPtxAssembler, "nvPTXCompiler cannot be started");
    const auto destroy = [this](PluginApi::Handle* h) { api_.destroy(h); };
    const std::unique_ptr<PluginApi::Handle, decltype(destroy)> owner(&handle, destroy);
    const std::string arch = fmt::format("--gpu-name={}", architecture);
    const char* options[] = {arch.c_str(), "--verbose", "--generate-line-info"};
    Output out;
    out.ok = api_.compile(handle, std::size(options), options) == 0;
    out.log = text(handle, api_.error_size, api_.error) + text(handle, api_.info_size, api_.info);
    size_t size = 0;
    if (!out.ok || api_.program_size(handle, &size) != 0) return out;
    out.cubin.resize(size);
    out.ok = api_.program(handle, out.cubin.data()) == 0;
    return out;
  }

 private:
  static std::string text(PluginApi::Handle handle, int (*size)(PluginApi::Handle, size_t*),
                          int (*read)(PluginApi::Handle, char*)) {
    size_t length = 0;
    if (size(handle, &length) != 0 || length == 0) return {};
    std::string out(length + 1, '\0');
    if (read(handle, out.data()) != 0) return {};
    out.resize(std::strlen(out.c_str()));
    return out;
  }

  PluginApi api_;
  unsigned major_ = 0, minor_ = 0;
};

// --- A process -----------------------------------------------------------------------------------

// A new folder that nobody else may enter. It is removed with its contents.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "braze-XXXXXX").string();
    if (!mkdtemp(name.data()))
      fail(codes::kPtxAssembler,
           fmt::format("a folder like {} cannot be made: {}", quote(name), std::strerror(errno)));
    path = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  fs::path path;
};

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write_file(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) fail(codes::kPtxAssembler, "the file cannot be written: " + quote(path.string()));
}

// Runs a program with both of its outputs in `log`, and returns its exit status.
int run_process(const std::vector<std::string>& arguments, const fs::path& log) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t process = 0;
  const int error = posix_spawn(&process, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error)
    fail(codes::kPtxAssembler,
         fmt::format("{} cannot be started: {}", quote(arguments[0]), std::strerror(error)));
  int status = 0;
  while (waitpid(process, &status, 0) < 0)
    if (errno != EINTR) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class Process : public PtxAssembler {
 public:
  explicit Process(std::string path) : path_(std::move(path)) {}
  std::string name() const override { return path_; }
  std::string identity() const override { return file_identity(path_); }
  bool is_in_process() const override { return false; }

 protected:
  Output run(const std::string& ptx, std::string_view architecture) const override {
    const TemporaryFolder folder;
    const fs::path source = folder.path / "kernel.ptx", cubin = folder.path / "kernel.cubin",
                   log = folder.path / "log";
    write_file(source, ptx);
    const int status =
        run_process({path_, fmt::format("--gpu-name={}", architecture), "--verbose",
                     "--generate-line-info", source.string(), "--output-file", cubin.string()},
                    log);
    Output out{status == 0, {}, read_file(log)};
    if (out.ok) out.cubin = read_file(cubin);
    return out;
  }

 private:
  std::string path_;
};

bool is_program(const fs::path& path) { return access(path.c_str(), X_OK) == 0; }

// The path of a program of the CUDA toolkit; empty if it is not found.
std::string find_tool(const char* name) {
  std::vector<fs::path> folders;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* home = std::getenv(variable)) folders.push_back(fs::path(home) / "bin");
  if (const char* path = std::getenv("PATH")) {
    std::stringstream list(path);
    for (std::string folder; std::getline(list, folder, ':');) folders.emplace_back(folder);
  }
  folders.emplace_back("/usr/local/cuda/bin");
  for (const fs::path& folder : folders)
    if (folder.is_absolute() && is_program(folder / name)) return folder / name;
  return {};
}

std::unique_ptr<const PtxAssembler> find_assembler() {
  const std::string choice = read_env(kEnvPtxas).value_or("");
  if (choice == "none") return nullptr;
  if (choice.empty() || choice == "plugin")
    if (const auto api = load_plugin()) return std::make_unique<Plugin>(*api);
  if (choice == "plugin")
    fail(codes::kEnvironment, fmt::format("{} is set to \"plugin\", but {} cannot be loaded",
                                          kEnvPtxas.name, kPluginName));
  if (!choice.empty() && !is_program(choice))
    fail(codes::kEnvironment,
         fmt::format("{} is set to {}, which is not a program", kEnvPtxas.name, quote(choice)));
  const std::string path = choice.empty() ? find_tool("ptxas") : choice;
  return path.empty() ? nullptr : std::make_unique<Process>(path);
}

// --- Logs ----------------------------------------------------------------------------------------

// The text between `before` and the next `'`, if the line has it.
std::optional<std::string_view> quoted_after(std::string_view line, std::string_view before) {
  const size_t at = line.find(before);
  if (at == std::string_view::npos) return std::nullopt;
  line.remove_prefix(at + before.size());
  return line.substr(0, line.find('\''));
}

// The number that stands before `unit`: 12 of "Used 12 registers" for " registers".
int64_t number_before(std::string_view line, std::string_view unit) {
  const size_t end = line.find(unit);
  if (end == std::string_view::npos) return 0;
  size_t begin = end;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  int64_t value = 0;
  std::from_chars(line.data() + begin, line.data() + end, value);
  return value;
}

// The source line of the first line of PTX that a log names: that of the last `.loc` before it. The
// files are listed after the code.
SourceLocation source_of_fault(const std::string& ptx, std::string_view log) {
  const size_t named = log.find("line ");
  if (named == std::string_view::npos) return {};
  int64_t fault = 0;
  std::from_chars(log.data() + named + 5, log.data() + log.size(), fault);
  int64_t file = -1;
  uint32_t line = 0, column = 0;
  std::istringstream lines(ptx);
  std::string text, word;
  for (int64_t at = 1; std::getline(lines, text); ++at) {
    std::istringstream words(text);
    words >> word;
    if (word == ".loc" && at <= fault) words >> file >> line >> column;
    int64_t number = 0;
    std::string name;
    if (word == ".file" && words >> number >> std::quoted(name) && number == file)
      return {name.starts_with("./") ? name.substr(2) : name, line, column};
  }
  return {};
}

// Whether a line is a warning. One with a number, such as "(C7510)", is about speed or about a
// promise that was not kept.
bool is_advice(std::string_view line) {
  return line.find("(C7") != std::string_view::npos ||
         line.find("warning") != std::string_view::npos;
}

}  // namespace

std::string file_identity(const fs::path& path) {
  struct stat facts {};
  if (stat(path.c_str(), &facts) != 0) return path.string();
  return fmt::format("{}, {} bytes of {}.{:09}", path.string(), facts.st_size, facts.st_mtim.tv_sec,
                     facts.st_mtim.tv_nsec);
}

std::vector<CodeFacts> read_ptx_log(std::string_view log, const std::vector<std::string>& entries) {
  std::vector<CodeFacts> facts(entries.size());
  CodeFacts* current = nullptr;
  const auto select = [&](std::string_view entry) {
    const auto found = std::find(entries.begin(), entries.end(), entry);
    current =
        found == entries.end() ? nullptr : &facts[static_cast<size_t>(found - entries.begin())];
  };
  while (!log.empty()) {
    const std::string_view line = log.substr(0, log.find('\n'));
    log.remove_prefix(std::min(line.size() + 1, log.size()));
    if (const auto entry = quoted_after(line, "Compiling entry function '")) select(*entry);
    if (is_advice(line)) {
      // Most warnings name their function. A warning that does not is about all of them.
      CodeFacts* about = nullptr;
      for (size_t i = 0; i < entries.size(); ++i)
        if (line.find("'" + entries[i] + "'") != std::string_view::npos) about = &facts[i];
      for (CodeFacts& each : facts)
        if (!about || about == &each) each.warnings.emplace_back(line);
    }
    if (!current) continue;
    if (line.find("bytes stack frame") != std::string_view::npos) {
      current->local_bytes += number_before(line, " bytes stack frame");
      current->spill_bytes +=
          number_before(line, " bytes spill stores") + number_before(line, " bytes spill loads");
    }
    if (line.find("Used ") != std::string_view::npos)
      current->registers = static_cast<int>(number_before(line, " registers"));
  }
  return facts;
}

Assembled PtxAssembler::assemble(const std::string& ptx, std::string_view architecture,
                                 const std::vector<std::string>& entries) const {
  Output out = run(ptx, architecture);
  // An assembler that rejects the text says why.
  const bool refused =
      out.log.find("error") != std::string::npos || out.log.find("fatal") != std::string::npos;
  if (!out.ok && !refused)
    fail(codes::kPtxAssembler,
         fmt::format("{} failed, and {}", name(),
                     out.log.empty() ? "printed nothing" : "printed: " + out.log),
         {.location = {},
          .node = "",
          .fix =
              fmt::format("set {} to the path of another assembler, or to none", kEnvPtxas.name)});
  if (!out.ok)
    fail(codes::kPtxRefused,
         fmt::format("{} refused {}: {}", name(), join(entries, ", ", std::identity()), out.log),
         {.location = source_of_fault(ptx, out.log), .node = "", .fix = "please report this"});
  return {std::move(out.cubin), read_ptx_log(out.log, entries)};
}

std::filesystem::path library_folder() {
  Dl_info info{};
  static const char anchor = 0;
  if (!dladdr(&anchor, &info) || !info.dli_fname) return {};
  std::error_code error;
  const fs::path self = fs::canonical(info.dli_fname, error);
  return error ? fs::path() : self.parent_path();
}

std::string sass_text(const std::string& cubin) {
  const std::string tool = find_tool("nvdisasm");
  if (tool.empty()) return "// nvdisasm of the CUDA toolkit is not in a folder of PATH\n";
  const TemporaryFolder folder;
  const fs::path file = folder.path / "kernel.cubin", text = folder.path / "kernel.sass";
  write_file(file, cubin);
  const int status = run_process({tool, "--print-code", file.string()}, text);
  if (status != 0)
    return fmt::format("// {} ended with status {}: {}\n", tool, status, read_file(text));
  return read_file(text);
}

const PtxAssembler* ptx_assembler() {
  static const std::unique_ptr<const PtxAssembler> assembler = find_assembler();
  return assembler.get();
}

}  // namespace braze
