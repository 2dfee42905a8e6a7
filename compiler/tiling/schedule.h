// schedule.h — Schedule: where and when a Fusion is computed, as a plain value.
//
// One schema serves the loop-shaped families; the family names the rule that filled it in. Blocks
// and tiles are per parallel axis of the Fusion's space: an instance covers `block` indices of an
// axis and steps through them `tile` at a time. Tiles larger than 1 become dimensions of tile
// values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace braze {

struct Schedule {
  std::string family;          ///< "row", "column", "dot"
  std::vector<int64_t> block;  ///< per parallel axis; a multiple of the tile
  std::vector<int64_t> tile;   ///< per parallel axis
  int64_t lane_axis = -1;      ///< the parallel axis along vectors; -1: the innermost inner axis
  int64_t inner_tile = 1;      ///< of the innermost inner axis; 1 with a parallel lane axis
  int64_t unroll = 1;          ///< of inner loops that step one index at a time
  int64_t split = 1;           ///< chunks of the outermost reduction axis, combined in order
  bool stream = false;         ///< results will not be read again soon
  // GPU: the block's threads, divided among the dimensions of its tiles. These are the parallel
  // axes with a tile larger than 1, with the lane axis last, or before a tiled inner axis.
  std::vector<int64_t> threads;  ///< powers of two; their product is a multiple of 32
  int64_t vector = 1;            ///< neighbours along the last dimension in one thread
  bool mma = false;              ///< products of slices by the warps' matrix units
  int64_t registers = 0;         ///< of a thread at most; 0: as many as the block leaves
  int64_t slice = 0;   ///< steps of the reduced axis whose factors a block copies on chip; 0: none
  int64_t stages = 0;  ///< slots of the ring of slices copied ahead; 0: none
  // GPU: blocks of a cluster, which share the innermost inner axis.
  int64_t cluster = 1;
};

}  // namespace braze
