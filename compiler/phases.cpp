#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "compiler/phases_p.h"
#include "ir/graph/verify.h"
#include "ir/support/config.h"
#include "ir/support/env.h"

namespace braze {

namespace codes {
inline constexpr Code kDumpFolder{
    "dump-folder", ErrorKind::InvalidArgument,
    "The steps of a compilation cannot be written to the folder that was given."};
}  // namespace codes

namespace {

// The extension of the files that hold a step's result in the dump folder.
std::string_view file_extension(std::string_view stage) {
  constexpr std::pair<std::string_view, std::string_view> kExtensions[] = {
      {"fusion", "txt"}, {"refusal", "txt"}, {"limit", "txt"}, {"orders", "txt"},
      {"llvm", "ll"},    {"asm", "s"},       {"ptx", "ptx"},   {"cuda", "cu"},
      {"sass", "sass"},  {"program", "txt"}};
  for (const auto& [name, extension] : kExtensions)
    if (name == stage) return extension;
  return "braze";
}

// The least level of BRAZE_DEBUG at which a step is printed: low levels print summaries, and high
// ones details.
int64_t debug_level(std::string_view stage) {
  constexpr std::pair<std::string_view, int64_t> kLevels[] = {
      {"program", 1}, {"fusion", 2}, {"unscheduled", 4}, {"loops", 3}, {"tile", 4}, {"kernel", 4},
      {"llvm", 5},    {"asm", 5},    {"ptx", 5},         {"cuda", 5},  {"sass", 5}};
  for (const auto& [name, level] : kLevels)
    if (name == stage) return level;
  return 3;  // graphs
}

// With BRAZE_DUMP, every compilation of the process has a folder of its own.
std::string dump_folder(const std::string& name, const CompileOptions& options) {
  if (!options.dump_folder.empty()) return options.dump_folder;
  const auto folder = read_env(kEnvDump);
  if (!folder || folder->empty()) return {};
  static std::atomic<int> compilations = 0;
  return (std::filesystem::path(*folder) / fmt::format("{:03}-{}", compilations++, name)).string();
}

[[noreturn]] void fail_dump(const std::string& path, const std::string& why) {
  fail(codes::kDumpFolder,
       fmt::format("the steps of the compilation cannot be written to {}: {}", quote(path), why));
}

}  // namespace

PhaseViewers::PhaseViewers(const std::string& name, const CompileOptions& options)
    : folder_(dump_folder(name, options)),
      observer_(options.observer),
      debug_(read_env_int(kEnvDebug, 0, 5).value_or(0)) {
  if (folder_.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) fail_dump(folder_, error.message());
}

void PhaseViewers::show(const CompilePhase& phase) {
  if (observer_) observer_(phase);
  if (debug_ >= debug_level(phase.stage)) {
    std::string text = fmt::format("// {} {}\n{}", phase.stage, phase.kernel, phase.text());
    if (text.ends_with('\n')) text.pop_back();
    write_log(LogLevel::Debug, text);
  }
  if (!folder_.empty()) write(phase);
}

void PhaseViewers::write(const CompilePhase& phase) {
  std::string name = fmt::format("{:02}-", number_++);
  if (!phase.kernel.empty()) name += fmt::format("{}.", phase.kernel);
  name += fmt::format("{}.{}", phase.stage, file_extension(phase.stage));
  const std::filesystem::path path = std::filesystem::path(folder_) / name;
  errno = 0;
  std::ofstream file(path);
  file << phase.text();
  if (!file.flush())
    fail_dump(path.string(), errno ? std::strerror(errno) : "the file cannot be written");
}

void check_after(const Graph& graph, std::string_view pass) {
  const std::vector<Diagnostic> findings = verify(graph);
  if (findings.empty()) return;
  fail(braze::codes::kInternal,
       fmt::format("pass {} made a graph that breaks rules of its language, {} in all: {}", pass,
                   findings.size(), findings.front().message),
       {findings.front().location, findings.front().context, "please report this"});
}

}  // namespace braze
