// nvtx_listener.h — a profiler for tests: the library that NVTX opens, and what it has heard.
#pragma once

#include <string>
#include <vector>

namespace braze::test {

struct HeardRanges {
  std::vector<std::string> domains;
  std::vector<std::string> begun;  ///< ranges, by name
  int open = 0, deepest = 0;       ///< of one thread
};

}  // namespace braze::test
