// mutate.h — faults planted in kernels for GPUs: each mutant differs from its kernel in one place.
#pragma once

#include <string>
#include <vector>

#include "ir/code/code.h"

namespace braze::testing {

struct Mutant {
  std::string fault;  ///< what was done, and to which statement
  uint32_t line = 0;  ///< of that statement in the kernel's text
  Kernel kernel;
};

/// All mutants of a kernel, in the order of its statements. Left out, since they are the kernel
/// again by the meaning of the language: hints dropped (tma.prefetch, griddep.*), waits for bulk
/// copies given to threads that have none, and texts that are equal to the kernel's.
std::vector<Mutant> mutants(const Kernel& kernel);

}  // namespace braze::testing
