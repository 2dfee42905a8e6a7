#include "frontend/builder/executable_cache.h"

#include <mutex>
#include <unordered_map>

#include "ir/graph/text.h"
#include "ir/program/program.h"
#include "ir/support/hash.h"
#include "ir/support/text.h"
#include "ir/target/target.h"

namespace braze {
namespace {

/// Everything that decides the executable.
Hash128 key_of(const Graph& graph, const Device& device, const CompileOptions& options) {
  std::string key = to_text(graph, {.locations = true});
  key += fmt::format("\n{}\n{}\nprecision {} fuse {}\n", device.name(), device.target().to_string(),
                     static_cast<int>(options.precision), options.fuse);
  for (const auto& [kernel, schedule] : options.schedules)
    key += fmt::format("{}: {}\n", quote(kernel), quote(schedule));
  return hash128(key);
}

}  // namespace

Executable compiled_executable(const Graph& graph, const Device& device,
                               const CompileOptions& options) {
  static auto* const mutex = new std::mutex;
  static auto* const cache = new std::unordered_map<Hash128, Executable>;
  const Hash128 key = key_of(graph, device, options);
  // A dump shows a compilation, so one has to happen.
  if (options.dump_folder.empty()) {
    const std::lock_guard lock(*mutex);
    if (const auto found = cache->find(key); found != cache->end()) return found->second;
  }
  auto program = std::make_shared<const Program>(compile(graph, device.target(), options));
  Executable executable = Executable::load(std::move(program), device);
  const std::lock_guard lock(*mutex);
  return cache->insert_or_assign(key, std::move(executable)).first->second;
}

}  // namespace braze
