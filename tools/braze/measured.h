// measured.h — a program that `braze explain` or `braze report` has compiled, run and timed.
#pragma once

#include <string>
#include <vector>

#include "tools/braze/explanation.h"
#include "tools/braze/inputs.h"
#include "tools/braze/timing.h"

namespace braze::tool {

/// What was measured, and of which sizes.
struct Measured {
  Timings timings;
  Sizes sizes;
};

/// Times `repeat` calls, at least 1, after one that finds nothing warm. `device` is one that the
/// program was compiled for.
Measured measured(const Program& program, const Device& device, const InputFlags& inputs,
                  int64_t repeat);

/// The kernels of the fuser that a launch runs: several if equal kernels are one launch, none for a
/// copy or an interpreted graph.
std::vector<const FusedKernel*> fused_in(const Explanation& explanation, const Launch& launch);
/// The estimated seconds of a launch, at the largest sizes. Kernels of one launch start together,
/// and run at the same time where each leaves a part of the device idle.
double estimated_seconds(const Explanation& explanation, const Launch& launch);

}  // namespace braze::tool
