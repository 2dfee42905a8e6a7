// compile_times.h — where the time of a compilation went.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace braze::tool {

/// Work of a kind. Seconds of all threads that did it, less what they spent in steps within it.
struct StepTime {
  std::string step;
  double seconds = 0;
  int times = 0;
};

/// Seconds in which threads made one kernel, from its tile program to its code.
struct KernelTime {
  std::string kernel;
  double seconds = 0;
};

struct CompileTimes {
  double elapsed = 0;  ///< seconds from the first span's begin to the last one's end
  double work = 0;     ///< seconds of all steps
  int threads = 0;
  std::vector<StepTime> steps;      ///< the longest first
  std::vector<KernelTime> kernels;  ///< the longest first
};

/// Calls `compile`, which does one compilation, and adds up its spans on the timeline.
CompileTimes compile_times(const std::function<void()>& compile);

/// Tables for a terminal.
std::string to_text(const CompileTimes& times);
std::string to_json(const CompileTimes& times);

}  // namespace braze::tool
