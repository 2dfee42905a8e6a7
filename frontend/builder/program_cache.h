// program_cache.h — programs and codes of kernels on disk, found by everything that determines
// them.
#pragma once

#include <functional>
#include <memory>
#include <type_traits>

#include "braze/compile.h"
#include "ir/graph/graph.h"
#include "ir/program/program.h"
#include "ir/target/target.h"
#include "runtime/cache/disk_cache.h"

namespace braze {

/// Everything that determines the program of a source: its text (that of a graph is taken without
/// the user's lines), the target, the options, the builds of Braze's libraries, and the compilers
/// and assemblers of this machine.
CacheKey program_key(const Graph& graph, const Target& target, const CompileOptions& options);
CacheKey program_key(const TileProgram& tile, const Target& target, const CompileOptions& options);
CacheKey program_key(const Kernel& kernel, const Target& target, const CompileOptions& options);

/// Everything that determines the code of a kernel. `text` is that of `code_key`. Of the options,
/// only those count that decide how kernels become code.
CacheKey kernel_code_key(const std::string& text, const Target& target,
                         const CompileOptions& options);

/// Whether `key`, the text of a key, is that of a kernel's code, and not of a program.
bool is_kernel_code(std::string_view key);

/// Compiles a graph. The code of a kernel that a program of this process had before, or that
/// `cache` has, is not made again; what is made is kept in both. It throws what `compile` throws.
Program compile_sharing(const Graph& graph, const Target& target, const CompileOptions& options,
                        DiskCache& cache = DiskCache::of_process());

/// Whether a compilation with these options may be skipped. It may not if an observer or a dump
/// folder must see it.
bool may_be_cached(const CompileOptions& options);

/// The program that is stored under `key`. If there is none, or it cannot be read, or BRAZE_DUMP or
/// BRAZE_DEBUG is set, it is the program of `make`, which is then stored. In both cases
/// `compile_seconds` is the time that this call took. It throws what `make` throws.
std::shared_ptr<const Program> cached_program(const CacheKey& key,
                                              const std::function<Program()>& make,
                                              DiskCache& cache = DiskCache::of_process());

/// `program` with the source lines of `source`. It was compiled from a graph that equals `source`.
std::shared_ptr<const Program> with_locations_of(const Graph& source,
                                                 std::shared_ptr<const Program> program);

/// Like `compile`, but it takes a program that already exists.
template <class Source>
std::shared_ptr<const Program> cached_program(const Source& source, const Target& target,
                                              const CompileOptions& options,
                                              DiskCache& cache = DiskCache::of_process()) {
  const auto make = [&] {
    if constexpr (std::is_same_v<Source, Graph>)
      return compile_sharing(source, target, options, cache);
    else
      return compile(source, target, options);
  };
  if (!may_be_cached(options)) return std::make_shared<const Program>(make());
  auto program = cached_program(program_key(source, target, options), make, cache);
  if constexpr (std::is_same_v<Source, Graph>)
    return with_locations_of(source, std::move(program));
  else
    return program;
}

}  // namespace braze
