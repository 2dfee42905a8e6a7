// speeds.h — measures how fast a device really is.
#pragma once

#include "braze/device.h"

namespace braze {

/// The greatest speeds of a device.
struct Speeds {
  double copy_bytes_per_second = 0;  ///< bytes read and written, in memory outside of all caches
  double flops_per_second = 0;       ///< of f32; a multiply-add is two
};

/// Measures the speeds in about a tenth of a second, whatever the size of the caches. The
/// arithmetic of GPUs is not measured, but comes from their data sheets. If nothing can be measured
/// (on a GPU with less than half a GiB of free memory, on simulators and on the interpreter), the
/// figures are those of the target.
Speeds measure_speeds(const Device& device);

/// The least time in seconds in which the device reads and writes this many bytes repeatedly. It is
/// measured with this amount of memory, because data that fits into caches is faster, and reads are
/// faster than writes. It does not include other limits of a computation, such as launches and
/// arithmetic. If nothing can be measured, it is computed from the speeds of the target.
double least_seconds(const Device& device, double read, double written);

}  // namespace braze
