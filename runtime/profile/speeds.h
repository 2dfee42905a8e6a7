// speeds.h — measures how fast a device really is.
#pragma once

#include "braze/device.h"

namespace braze {

/// What a device can do at most.
struct Speeds {
  double copy_bytes_per_second = 0;  ///< bytes read and written, in memory that no cache holds
  double flops_per_second = 0;       ///< of f32; a multiply-add is two
};

/// Measured in about a tenth of a second, except for the arithmetic of GPUs, which comes from their
/// data sheets. If nothing can be measured (a GPU without half a GiB to spare, simulators, the
/// interpreter), the figures are those of the target.
Speeds measure_speeds(const Device& device);

/// The least seconds in which the device reads and writes this many bytes repeatedly. It is
/// measured with as much memory, because data that fits into its caches is faster, and reads are
/// faster than writes. The other limits of a computation, launches and arithmetic, come on top. If
/// nothing can be measured, as `measure_speeds`.
double least_seconds(const Device& device, double read, double written);

}  // namespace braze
