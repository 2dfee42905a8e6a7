// schedule.h — Schedule: the blocks and tiles for which a space is priced. (The schedule of a
// kernel that is made is a list of steps: compiler/loops/steps/text.h.)
//
// Blocks and tiles are given for each parallel axis of the Fusion's space: an instance covers
// `block` indices of an axis, and takes `tile` of them at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace braze {

struct Schedule {
  std::string family;          ///< "row", "column", "dot"
  std::vector<int64_t> block;  ///< per parallel axis; a multiple of the tile
  std::vector<int64_t> tile;   ///< per parallel axis
  int64_t lane_axis = -1;      ///< the parallel axis along vectors; -1: the innermost inner axis
  int64_t inner_tile = 1;      ///< of the innermost inner axis; 1 with a parallel lane axis
  int64_t split = 1;           ///< chunks of the outermost reduction axis, combined in order
  // GPU: the block's threads, divided among the dimensions of its tiles. The dimensions are the
  // parallel axes whose tile is larger than 1. The lane axis is the last of them, followed only by
  // a tiled inner axis if there is one.
  std::vector<int64_t> threads;
  int64_t vector = 1;   ///< neighbours along the last dimension in one thread
  int64_t cluster = 1;  ///< blocks of a cluster, which share the innermost inner axis
};

}  // namespace braze
