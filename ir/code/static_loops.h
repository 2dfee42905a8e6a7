// static_loops.h — writes `for .. static` out, as code generators and the simulator need it.
#pragma once

#include "ir/code/code.h"

namespace braze {

/// Replaces every static loop by its turns: the symbol becomes a constant, what the body defines
/// gets new names in each turn, and offsets of slices become numbers. `code` must be sound.
void expand_static_loops(KernelCode& code);

}  // namespace braze
