// lower.h — tile program + Target -> kernel.
//
// The rules are those of docs/ir/languages.md sections 5 and 10, and carry its numbers
// (L1, D1 ...) in the code. The lowering changes no rounding and no order.
#pragma once

#include "ir/code/code.h"
#include "ir/target/target.h"

namespace braze {

/// Lowers a plain tile program for a CPU or a GPU, a pipelined one for its target. Unsupported where
/// a rule is missing; Internal on a program that its verifier would refuse.
Kernel lower(const TileProgram& program, const Target& target);

}  // namespace braze
