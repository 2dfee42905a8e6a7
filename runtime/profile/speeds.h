// speeds.h — how fast a device really is.
#pragma once

#include "braze/device.h"

namespace braze {

/// What a device can do at most.
struct Speeds {
  double copy_bytes_per_second = 0;  ///< read and written, of memory that no cache holds
  double flops_per_second = 0;       ///< of f32; a multiply-add is two
};

/// Measured in about a tenth of a second, but for the arithmetic of GPUs, which is that of their
/// data sheets; the target's where nothing can be measured: on a GPU without half a GiB to spare,
/// for simulators and the interpreter.
Speeds measure_speeds(const Device& device);

/// The least seconds in which the device reads and writes so many bytes, again and again: found by
/// doing it with as much memory, for what fits its caches is faster, and reads are faster than
/// writes. The other limits of a computation, launches and arithmetic, come on top. As
/// `measure_speeds` where nothing can be measured.
double least_seconds(const Device& device, double read, double written);

}  // namespace braze
