// compiled.h — from a graph to an executable, once for equal graphs of this process.
#pragma once

#include <memory>

#include "braze/compile.h"
#include "braze/executable.h"
#include "ir/graph/graph.h"

namespace braze {

/// `graph`, compiled for `device` and loaded on it. It is compiled once for an equal graph, target
/// and options, and loaded once for each device and place in the user's source. Thread-safe;
/// different graphs are compiled at the same time.
Executable compiled_executable(const Graph& graph, const Device& device,
                               const CompileOptions& options);

/// The program alone, compiled once in the same way.
std::shared_ptr<const Program> compiled_program(const Graph& graph, const Target& target,
                                                const CompileOptions& options);

}  // namespace braze
