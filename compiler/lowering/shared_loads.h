// shared_loads.h — loads that read the same elements of memory.
#pragma once

#include "ir/code/code.h"

namespace braze {

/// In each region of a kernel for a GPU: an element of memory that nobody writes, and that several
/// loads read under one condition, is loaded once. The loads may be shifted against each other: the
/// taps of a window, written out for neighbours that one thread has. `kernel` must be sound.
void share_loads(Kernel& kernel);

}  // namespace braze
