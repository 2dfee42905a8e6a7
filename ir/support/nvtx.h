// nvtx.h — ranges for NVIDIA's profilers, which show the GPU work that was submitted in a range.
//
// A profiler that wants ranges names a library in NVTX_INJECTION64_PATH. NVTX, which consists of
// headers only, opens that library.
#pragma once

namespace braze::nvtx {

/// Whether this build can make ranges, because NVTX's headers were found.
bool is_built_in();
/// Whether a profiler listens, so that ranges are made.
bool is_listening();

/// `push` begins a range of this thread, and `pop` ends it.
void push(const char* name);
void pop();

}  // namespace braze::nvtx
