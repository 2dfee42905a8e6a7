#include "frontend/builder/program_cache.h"

#include <algorithm>
#include <optional>

#include "braze/version.h"
#include "compiler/kernel_codes.h"
#include "ir/code/code.h"
#include "ir/code/text.h"
#include "ir/graph/origins.h"
#include "ir/graph/text.h"
#include "ir/program/package.h"
#include "ir/support/clocks.h"
#include "ir/support/env.h"
#include "ir/support/text.h"
#include "ir/support/trace.h"
#include "runtime/cache/build_id.h"
#include "runtime/cache/memory_cache.h"

namespace braze {

namespace {

constexpr std::string_view kKernelCode = "kernel-code";

// The builds of both libraries count: one makes the code, and the other defines how it is called.
const std::string& compiler_build_id() {
  static const char kHere = 0;
  static const std::string id = build_id_around(&kHere);
  return id;
}

const std::string& library_build_id() {
  static const std::string id = runtime_build_id();
  return id;
}

// What any code depends on.
CacheKey key_of_tools(const Target& target, const CompileOptions& options) {
  CacheKey key;
  key.add("braze", BRAZE_VERSION);
  key.add("compiler-build", compiler_build_id());
  key.add("runtime-build", library_build_id());
  key.add_lines(toolchain_text(target, options));
  key.add("target", target.to_string());
  return key;
}

CacheKey key_of(std::string_view language, std::string_view text, const Target& target,
                const CompileOptions& options) {
  CacheKey key = key_of_tools(target, options);
  key.add_lines(key_text(options));
  key.add(language, text);
  return key;
}

// Without build ids, a key would not determine the program. And a user who asks to see compilations
// must get some.
bool is_usable(DiskCache& cache) {
  return !compiler_build_id().empty() && !library_build_id().empty() && !read_env(kEnvDump) &&
         read_env_int(kEnvDebug, 0, 5).value_or(0) == 0 && cache.enabled();
}

std::optional<Program> load(const CacheKey& key, DiskCache& cache) {
  const std::optional<std::string> payload = cache.load(key);
  if (!payload) return std::nullopt;
  try {
    return decode(std::as_bytes(std::span(*payload)), key.name());
  } catch (const std::exception&) {  // the entry is complete and has this key, but is not a program
    cache.remove(key);
    return std::nullopt;
  }
}

// A kernel's code is stored as a program without launches, so that packages are the only format of
// what is stored.
std::string encode_code(const Artifact& code, const Target& target) {
  Program program;
  program.name = code.kernel;
  program.target = target;
  program.artifacts.push_back(code);
  return encode(program);
}

std::optional<Artifact> load_code(const CacheKey& key, DiskCache& cache) {
  std::optional<Program> program = load(key, cache);
  if (!program || program->artifacts.size() != 1) return std::nullopt;
  return std::move(program->artifacts.front());
}

constexpr size_t kMostCodes = 1024;

// The codes that this process used last, and those on disk.
class CachedCodes : public KernelCodes {
 public:
  CachedCodes(const Target& target, const CompileOptions& options, DiskCache& cache)
      : target_(target), options_(options), cache_(cache) {}

  std::shared_ptr<const Artifact> get_or_make(const std::string& text,
                                              const std::function<Artifact()>& make) override {
    // It is never destroyed, because static Jitted functions may use it at the very end.
    static auto* const codes = new MemoryCache<std::shared_ptr<const Artifact>>(kMostCodes);
    const CacheKey key = kernel_code_key(text, target_, options_);
    return codes->get_or_make(hash128(key.text()), [&] {
      if (!is_usable(cache_)) return std::make_shared<const Artifact>(make());
      if (std::optional<Artifact> code = load_code(key, cache_))
        return std::make_shared<const Artifact>(std::move(*code));
      auto code = std::make_shared<const Artifact>(make());
      cache_.store(key, encode_code(*code, target_));
      return code;
    });
  }

 private:
  const Target& target_;
  const CompileOptions& options_;
  DiskCache& cache_;
};

}  // namespace

CacheKey kernel_code_key(const std::string& text, const Target& target,
                         const CompileOptions& options) {
  CacheKey key = key_of_tools(target, options);
  key.add("gpu_code", std::to_string(static_cast<int>(options.gpu_code)));
  key.add("assemble", options.assemble ? "true" : "false");
  key.add(kKernelCode, text);
  return key;
}

bool is_kernel_code(std::string_view key) {
  return key.find(fmt::format("\n{} ", kKernelCode)) != std::string_view::npos;
}

Program compile_sharing(const Graph& graph, const Target& target, const CompileOptions& options,
                        DiskCache& cache) {
  CachedCodes codes(target, options, cache);
  return compile_with(codes, graph, target, options);
}

CacheKey program_key(const Graph& graph, const Target& target, const CompileOptions& options) {
  return key_of("graph", to_text(graph), target, options);
}

CacheKey program_key(const TileProgram& tile, const Target& target, const CompileOptions& options) {
  return key_of("tile", to_text(tile), target, options);
}

CacheKey program_key(const Kernel& kernel, const Target& target, const CompileOptions& options) {
  return key_of("kernel", to_text(kernel), target, options);
}

bool may_be_cached(const CompileOptions& options) {
  return options.dump_folder.empty() && !options.observer;
}

std::shared_ptr<const Program> with_locations_of(const Graph& source,
                                                 std::shared_ptr<const Program> program) {
  const std::vector<SourceLocation> locations = locations_of(source);
  const auto same = [](const SourceLocation& a, const SourceLocation& b) {
    return a.line == b.line && a.column == b.column && bool(a) == bool(b) &&
           (!a || std::string_view(a.file) == b.file);
  };
  if (std::ranges::equal(program->locations, locations, same)) return program;
  auto moved = std::make_shared<Program>(*program);
  moved->locations = locations;
  return moved;
}

std::shared_ptr<const Program> cached_program(const CacheKey& key,
                                              const std::function<Program()>& make,
                                              DiskCache& cache) {
  if (!is_usable(cache)) return std::make_shared<const Program>(make());
  WallClock clock;
  if (std::optional<Program> program = load(key, cache)) {
    if (trace::is_on()) {
      trace::Arguments arguments;
      arguments.add("entry", key.name());
      trace::add_instant("cache", fmt::format("{} found on disk", program->name), arguments);
    }
    program->compile_seconds = clock.lap();
    return std::make_shared<const Program>(std::move(*program));
  }
  auto program = std::make_shared<const Program>(make());
  cache.store(key, encode(*program));
  return program;
}

}  // namespace braze
