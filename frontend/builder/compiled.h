// compiled.h — compiles and loads a graph, once for all equal graphs of this process.
#pragma once

#include <memory>

#include "braze/compile.h"
#include "braze/executable.h"
#include "ir/graph/graph.h"

namespace braze {

/// `graph`, compiled for `device` and loaded on it. Graphs that are equal are compiled once for
/// each target and options. They are loaded once for each device and place in the user's source. It
/// is thread-safe, and different graphs are compiled at the same time.
Executable compiled_executable(const Graph& graph, const Device& device,
                               const CompileOptions& options);

/// Only the program, which is compiled once in the same way.
std::shared_ptr<const Program> compiled_program(const Graph& graph, const Target& target,
                                                const CompileOptions& options);

}  // namespace braze
