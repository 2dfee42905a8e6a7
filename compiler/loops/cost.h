// cost.h — what cost reads off a scheduled tree: section 4 of docs/design/0003-loop-tree.md.
#pragma once

#include "compiler/loops/tree.h"
#include "ir/target/target.h"

namespace braze {

struct TreeWork {
  double instances = 1;        ///< of the grid
  double tile = 1;             ///< elements of one
  double operations = 0;       ///< of all elements
  double products = 0;         ///< operations of dots on vector units
  double matrix_products = 0;  ///< and on matrix units
};
TreeWork work_of(const LoopTree& tree, const Target& target);

/// How often an instance walks along an axis, one loop behind the other: what fits in a tile is
/// there for all tasks.
size_t count_walks(const LoopTree& tree);

}  // namespace braze
