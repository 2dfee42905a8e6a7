// plan.h — the host plan, which says when each kernel runs and on which memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compiler/loops/tree.h"
#include "compiler/planning/updates.h"
#include "ir/code/code.h"
#include "ir/program/program.h"

namespace braze {

/// One Fusion with its code.
struct CompiledFusion {
  Fusion fusion;
  /// After all steps; null for a collective. Kernels that are equal except for names share it.
  std::shared_ptr<const LoopTree> tree;
  std::vector<NodeId> tensors;     ///< the nodes of the tree's tensors in this Fusion
  std::string name;                ///< of the kernel, unique in the program
  double seconds = 0;              ///< the estimated time of its launch; 0: unknown
  std::vector<NodeId> parameters;  ///< nodes of the kernel's memory parameters
  Kernel kernel;
  /// The values of the kernel's symbols in this launch; empty: they are sizes of the graph.
  std::vector<int64_t> sizes;
  std::shared_ptr<const Artifact> code;  ///< shared by all kernels that are equal except for names
};

/// Makes the Program. It gives memory to every value that needs some, updates in place where all
/// other readers have run before, and packs temporaries into one arena. `launches` says which
/// fusions each launch runs (order.h): the kernel and the code of the first of them serve all.
Program plan(const LoopForms& forms, const std::vector<CompiledFusion>& fusions,
             const std::vector<std::vector<size_t>>& launches, const Updates& updates,
             const Target& target);

/// Makes the Program of a single kernel, whose parameters are the inputs and outputs. `signature`
/// has their shapes; it is the kernel itself, or the tile program from which the kernel was made.
/// Throws Unsupported for kinds of parameters that a Program cannot have.
Program plan(const KernelCode& signature, const Kernel& kernel, Artifact artifact,
             const Target& target);

/// The names of the kernels, made from the user's labels and ops, such as "max_sub_exp". No two are
/// equal.
std::vector<std::string> kernel_names(const Graph& graph, const std::vector<Fusion>& fusions);

}  // namespace braze
