// cost.h — the figures that the cost model reads from a scheduled tree (0003, section 4).
#pragma once

#include "compiler/loops/tree.h"
#include "ir/target/target.h"

namespace braze {

struct TreeWork {
  double instances = 1;        ///< instances of the grid
  double tile = 1;             ///< elements that one instance works on at a time
  double operations = 0;       ///< operations for all elements
  double products = 0;         ///< operations of dots on vector units
  double matrix_products = 0;  ///< operations of dots on matrix units
  double beside_products = 0;  ///< bytes that follow asynchronous dots and do not move beside them
  double slowly = 0;           ///< what these bytes cost, in bytes at the rate of memory
};
TreeWork work_of(const LoopTree& tree, const Target& target);

/// How many loops along an axis an instance runs one after the other. A value that fits in a tile
/// is read once for all tasks.
size_t count_walks(const LoopTree& tree);

}  // namespace braze
