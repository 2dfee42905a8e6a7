// lower.h — the lowering of a tile program to a kernel for a Target.
//
// It follows the rules of docs/ir/languages.md, sections 5 and 10. The code names them by their
// numbers (L1, D1 ...). The lowering changes no rounding and no order.
#pragma once

#include "ir/code/code.h"
#include "ir/target/target.h"

namespace braze {

/// Lowers a plain tile program for a CPU or a GPU, or a pipelined program for its target. The error
/// is Unsupported if a rule is missing, and Internal if the verifier would reject the program.
Kernel lower(const TileProgram& program, const Target& target);

}  // namespace braze
