// lower.h — the lowering of a tile program to a kernel for a Target.
//
// It follows the rules of docs/ir/languages.md, sections 5 and 10. The code names them by their
// numbers (L1, D1 ...). The lowering changes no rounding and no order.
#pragma once

#include "ir/code/code.h"
#include "ir/target/target.h"

namespace braze {

/// Lowers a plain tile program for a CPU or a GPU, or a pipelined program for its target. Throws
/// Unsupported if there is no rule for something in the program, and Internal if the verifier would
/// have rejected the program.
Kernel lower(const TileProgram& program, const Target& target);

}  // namespace braze
