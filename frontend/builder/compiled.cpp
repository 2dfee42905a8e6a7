#include "frontend/builder/compiled.h"

#include "frontend/builder/program_cache.h"
#include "ir/support/text.h"
#include "runtime/cache/memory_cache.h"

namespace braze {

namespace {

constexpr size_t kMostPrograms = 1024;

std::string lines_text(const Graph& graph) {
  std::string text;
  for (size_t i = 0; i < graph.size(); ++i) text += graph[NodeId(i)].location.to_string() + '\n';
  return text;
}

}  // namespace

std::shared_ptr<const Program> compiled_program(const Graph& graph, const Target& target,
                                                const CompileOptions& options) {
  // This cache is never destroyed, because static Jitted functions may use it at the very end. The
  // same holds for the other cache.
  static auto* const programs = new MemoryCache<std::shared_ptr<const Program>>(kMostPrograms);
  const auto make = [&] { return compile_sharing(graph, target, options); };
  // If a dump or an observer is to see the compilation, then it has to happen.
  if (!may_be_cached(options)) return std::make_shared<const Program>(make());
  const CacheKey key = program_key(graph, target, options);
  return with_locations_of(
      graph, programs->get_or_make(hash128(key.text()), [&] { return cached_program(key, make); }));
}

Executable compiled_executable(const Graph& graph, const Device& device,
                               const CompileOptions& options) {
  static auto* const executables = new MemoryCache<Executable>(kMostPrograms);
  const Target& target = device.target();
  if (!may_be_cached(options))
    return Executable::load(compiled_program(graph, target, options), device);
  const CacheKey key = program_key(graph, target, options);
  // A loaded program knows the user's source lines, so each place in the source has its own. A
  // compiled program serves all equal graphs.
  return executables->get_or_make(hash128(key.text() + device.name() + lines_text(graph)), [&] {
    return Executable::load(compiled_program(graph, target, options), device);
  });
}

}  // namespace braze
