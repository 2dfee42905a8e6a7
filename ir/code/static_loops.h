// static_loops.h — loops that are expanded: `for .. static`, for code generators and the simulator,
// and unrolled ones.
#pragma once

#include <cstdint>

#include "ir/code/code.h"

namespace braze {

/// The number of copies of its body to which code generators expand the loop; 0 for a loop without
/// a turn.
int64_t body_copies(const ForOp& loop);

/// Replaces every static loop by its turns. The symbol becomes a constant, everything that the body
/// defines gets new names in each turn, and offsets of slices become numbers. `code` must be sound.
void expand_static_loops(KernelCode& code);

}  // namespace braze
