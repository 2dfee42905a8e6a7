// executable_cache.h — the executables of this process, so that equal graphs are compiled once.
#pragma once

#include "braze/compile.h"
#include "braze/executable.h"
#include "ir/graph/graph.h"

namespace braze {

/// `graph` compiled for `device` and loaded on it; the one made before, if there is one for an equal
/// graph (text with locations), target and options. Thread-safe; kept until the process ends.
Executable compiled_executable(const Graph& graph, const Device& device,
                               const CompileOptions& options);

}  // namespace braze
