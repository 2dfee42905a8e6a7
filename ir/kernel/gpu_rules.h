// gpu_rules.h — checks the rules that only kernels for GPUs have: G1 to G10 of
// docs/ir/languages.md.
#pragma once

#include <vector>

#include "braze/error.h"
#include "ir/code/code.h"
#include "ir/target/target.h"

namespace braze {

/// The findings of a kernel whose names and index expressions are sound. Estimates of registers
/// that are over the budget go to `notes`.
std::vector<Diagnostic> check_gpu_rules(const KernelCode& kernel, std::vector<Diagnostic>& notes);

/// Whether a GPU has the instruction.
bool has_instruction(const Target& target, Instruction instruction);

/// Whether the instruction is a product of four warps, which runs while they go on.
bool is_wgmma(Instruction instruction);

/// The number of instances of a phase: those of one member, or those of all members together if
/// they have sizes of their own.
Expr count_instances(const KernelCode& kernel, const Phase& phase);
/// For a kernel whose members have sizes of their own: the number of the first instance of each
/// member, and behind them the number of all instances. The instances of one member follow those of
/// the member before it.
std::vector<int64_t> first_instances(const KernelCode& kernel, const Phase& phase);

/// Whether the phase waits for the kernels before it, so that it may begin before they end.
bool awaits_predecessors(const Phase& phase);

}  // namespace braze
