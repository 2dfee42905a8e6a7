// nvtx.h — ranges for NVIDIA's profilers, which show what ran within them.
//
// A profiler that wants them names a library in NVTX_INJECTION64_PATH; NVTX, which is headers only,
// opens it.
#pragma once

namespace braze::nvtx {

/// Whether this build can make ranges, because NVTX's headers were found.
bool is_built_in();
/// Whether ranges are made, because a profiler listens.
bool is_listening();

/// Begins and ends a range of this thread.
void push(const char* name);
void pop();

}  // namespace braze::nvtx
