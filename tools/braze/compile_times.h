// compile_times.h — how long each step of a compilation took.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace braze::tool {

/// Work of one kind: the seconds of all threads that did it, without the steps inside it.
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
