// static_loops.h — expands `for .. static`, for code generators and the simulator.
#pragma once

#include "ir/code/code.h"

namespace braze {

/// Replaces every static loop by its turns. The symbol becomes a constant, everything that the body
/// defines gets new names in each turn, and offsets of slices become numbers. `code` must be sound.
void expand_static_loops(KernelCode& code);

}  // namespace braze
