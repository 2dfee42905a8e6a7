// plan.h — the host plan: which kernel runs when, on which memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compiler/planning/updates.h"
#include "ir/code/code.h"
#include "ir/program/program.h"

namespace braze {

/// One Fusion with the code made for it.
struct CompiledFusion : PlacedFusion {
  std::vector<NodeId> parameters;  ///< nodes behind the kernel's memory parameters
  Kernel kernel;
  std::shared_ptr<const Artifact> code;  ///< one for all kernels that are equal but for names
};

/// Makes the Program: memory for every value that reaches it, in-place updates where no reader is
/// left, temporaries packed into one arena, launches in order. `fusions` are in an order in which
/// they can run.
Program plan(const LoopForms& forms, const std::vector<CompiledFusion>& fusions,
             const Updates& updates, const Target& target);

/// The Program of one kernel alone: its parameters are the inputs and outputs. `signature` has
/// their shapes: the kernel itself, or the tile program it was made of. Unsupported for parameters
/// that a Program does not have.
Program plan(const KernelCode& signature, const Kernel& kernel, Artifact artifact,
             const Target& target);

/// "max_sub_exp": a kernel's name, made of the user's labels and ops.
std::string kernel_name(const Graph& graph, const Fusion& fusion);

}  // namespace braze
