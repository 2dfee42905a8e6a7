// compiled.h — from a graph to an executable, once for equal graphs of this process.
#pragma once

#include "braze/compile.h"
#include "braze/executable.h"
#include "ir/graph/graph.h"

namespace braze {

/// `graph` compiled for `device` and loaded on it; the one made before, if there is one for an
/// equal graph (text with locations), target and options. Thread-safe.
Executable compiled_executable(const Graph& graph, const Device& device,
                               const CompileOptions& options);

}  // namespace braze
