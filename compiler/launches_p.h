// launches_p.h — decides which kernels of a graph become one launch, and which share one code.
//
// Equal kernels become members of one launch (compiler/planning/order.h). On a GPU, so do kernels
// that are equal up to their sizes: a kernel for the list of them (compiler/loops/lists.h) is
// scheduled and lowered anew, and takes the place of theirs if no member becomes much slower. Such
// kernels that wait for each other stay launches of their own and share the code of that kernel.
#pragma once

#include <string>
#include <vector>

#include "compiler/kernels_p.h"

namespace braze {

struct Launches {
  // By launch: its fusions. The kernel of the first serves all.
  std::vector<std::vector<size_t>> members;
  std::vector<std::string> codes;  // by launch: equal texts share code; empty: a collective
};

/// Decides what is launched together, and gives equal kernels the text of one of them.
Launches make_launches(const Compilation& compilation, Kernels& kernels);

}  // namespace braze
