// parallel.h — does work on all cores.
#pragma once

#include <cstddef>
#include <functional>

namespace braze {

/// The number of threads that the machine runs at the same time.
unsigned count_cores();

/// Calls `work(i)` for all i below `count` on up to `threads` threads. Small i begin first. If
/// several calls fail, it throws the error of the smallest i, as if they had run one after the
/// other. Calls with greater i may not have run.
void parallel_for(size_t count, unsigned threads, const std::function<void(size_t)>& work);
inline void parallel_for(size_t count, const std::function<void(size_t)>& work) {
  parallel_for(count, count_cores(), work);
}

}  // namespace braze
