// equal.h — finds kernels that are equal except for names and the order of their parameters.
//
// Names come from the user's labels, with numbers where labels clash. The order of parameters is
// that of the nodes in the graph. Neither changes the code, so equal kernels are compiled once.
#pragma once

#include <string>
#include <vector>

#include "compiler/planning/plan.h"

namespace braze {

/// What determines the code of a kernel.
struct KernelKey {
  std::string text;  ///< with numbers in place of names; empty for a collective
  /// Numbers of the memories that are parameters, in the order in which the code uses them.
  std::vector<size_t> parameters;
};
KernelKey key_of(const CompiledFusion& fusion);

/// What determines the code of a kernel apart from the names of its functions: a text with numbers
/// in place of names. Kernels of different programs with equal texts can use one code. Empty if the
/// code contains source lines, which belong to one program.
std::string code_key(const Kernel& kernel);

/// Gives `fusion` the kernel of `other`, whose key has the same text, and puts the parameters of
/// `fusion` into the order of that kernel. The name and the schedule stay.
void take_kernel(CompiledFusion& fusion, KernelKey& key, const CompiledFusion& other,
                 const KernelKey& other_key);

}  // namespace braze
