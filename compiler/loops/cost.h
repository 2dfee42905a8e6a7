// cost.h — what cost reads off a scheduled tree: section 4 of docs/design/0003-loop-tree.md. So far
// of loops without reductions.
#pragma once

#include "compiler/loops/tree.h"
#include "ir/target/target.h"

namespace braze {

struct TreeWork {
  double instances = 1;   ///< of the grid
  double tile = 1;        ///< elements of one
  double operations = 0;  ///< of all elements
};
TreeWork work_of(const LoopTree& tree, const Target& target);

}  // namespace braze
