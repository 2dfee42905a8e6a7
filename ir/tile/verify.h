// verify.h — every way in which a plain tile program can be wrong: rules T1 to T21.
#pragma once

#include <vector>

#include "ir/code/check.h"
#include "ir/code/code.h"

namespace braze {

/// Everything wrong with `program`; empty if it is sound. Accesses that are not proven to stay
/// inside go to `notes`, if that is given. Never throws.
std::vector<Diagnostic> verify(const TileProgram& program,
                               std::vector<Diagnostic>* notes = nullptr);

}  // namespace braze
