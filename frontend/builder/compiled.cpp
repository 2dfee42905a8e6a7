#include "frontend/builder/compiled.h"

#include "frontend/builder/program_cache.h"
#include "runtime/cache/executable_cache.h"

namespace braze {

Executable compiled_executable(const Graph& graph, const Device& device,
                               const CompileOptions& options) {
  static auto* const cache = new ExecutableCache;  // outlives static Jitted functions
  const Target& target = device.target();
  const auto make = [&] { return compile(graph, target, options); };
  // A dump or an observer shows a compilation, so one has to happen.
  if (!may_be_cached(options))
    return Executable::load(std::make_shared<const Program>(make()), device);
  const CacheKey key = program_key(graph, target, options);
  return cache->get_or_load(hash128(key.text() + device.name()),
                            [&] { return Executable::load(cached_program(key, make), device); });
}

}  // namespace braze
