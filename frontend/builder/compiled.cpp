#include "frontend/builder/compiled.h"

#include "ir/graph/text.h"
#include "ir/program/program.h"
#include "ir/support/hash.h"
#include "ir/support/text.h"
#include "ir/target/target.h"
#include "runtime/cache/executable_cache.h"

namespace braze {
namespace {

/// Everything that decides the executable.
Hash128 key_of(const Graph& graph, const Device& device, const CompileOptions& options) {
  std::string key = to_text(graph, {.locations = true});
  key += fmt::format("\n{}\n{}\n", device.name(), device.target().to_string());
  return hash128(key + key_text(options));
}

}  // namespace

Executable compiled_executable(const Graph& graph, const Device& device,
                               const CompileOptions& options) {
  static auto* const cache = new ExecutableCache;  // outlives static Jitted functions
  const auto make = [&] {
    auto program = std::make_shared<const Program>(compile(graph, device.target(), options));
    return Executable::load(std::move(program), device);
  };
  // A dump or an observer shows a compilation, so one has to happen.
  if (!options.dump_folder.empty() || options.observer) return make();
  return cache->get_or_load(key_of(graph, device, options), make);
}

}  // namespace braze
