// timing.h — how long a program takes, as a whole and kernel by kernel, and what the machine could
// do.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "braze/array.h"
#include "braze/device.h"
#include "ir/graph/sizes.h"
#include "ir/program/program.h"
#include "runtime/profile/speeds.h"

namespace braze::tool {

/// The times of something that ran often, and the work it does each time.
struct Timing {
  std::string name;
  std::vector<double> seconds;  ///< sorted
  double read = 0, written = 0, flops = 0;
  double least = 0;  ///< seconds in which the machine can read and write as much; 0: not measured

  double quantile(double q) const;
  double bytes() const { return read + written; }
  double bytes_per_second() const { return bytes() / quantile(0.5); }
  double flops_per_second() const { return flops / quantile(0.5); }
};

/// What was measured, and on which machine.
struct Timings {
  std::vector<Timing>
      of;  ///< the whole call first, then its kernels in the order of their launches
  /// On a GPU, seconds that a call adds when many follow one another and only the last one is
  /// waited for: samples, sorted. Empty if calls use up their arguments.
  std::vector<double> in_a_row;
  Speeds machine;
  /// Whether the speeds of a machine say something: not about simulators and the interpreter.
  bool has_machine = false;
};

/// Seconds from the call to the last of its results.
double seconds_of(const std::function<std::vector<Array>()>& call);

/// Times `repeat` calls, at least 1. `call` does one call and gives its seconds. `next` does one
/// call with the arguments of the one before and does not wait; it is null if calls use them up.
Timings measure(const std::function<double()>& call, const std::function<void()>& next,
                const Program& program, const Sizes& sizes, const Device& device, int64_t repeat);

/// Whether a call takes over the memory of an argument.
bool uses_up_arguments(const Program& program);

}  // namespace braze::tool
