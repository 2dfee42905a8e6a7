// verify.h — finds everything that is wrong with a tile program: rules T1 to T22, and P1 to P19 if
// it is pipelined.
#pragma once

#include <vector>

#include "ir/code/check.h"
#include "ir/code/code.h"

namespace braze {

/// Everything that is wrong with `program`; empty if it is sound. Accesses that are not proven to
/// stay inside go to `notes`, if it is given. Never throws.
std::vector<Diagnostic> verify(const TileProgram& program,
                               std::vector<Diagnostic>* notes = nullptr);

}  // namespace braze
