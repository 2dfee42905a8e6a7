// speeds.h — how fast a device really is.
#pragma once

#include "braze/device.h"
#include "ir/target/target.h"

namespace braze {

/// The device's target with the speed of its memory measured (bytes read and written by a copy), on
/// a CPU also that of its arithmetic. Takes about a tenth of a second, and half a GiB of a GPU's
/// memory; without that much, and for simulators and the interpreter, it is the target as it is.
Target measure_speeds(const Device& device);

}  // namespace braze
