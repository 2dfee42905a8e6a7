// cost_p.h — what the parts of the cost model share: the work that a tree does.
//
//   cost_work.cpp      operations, products, and how often things are done
//   cost_traffic.cpp   what is loaded and stored
//   cost.cpp           how long all this takes
#pragma once

#include <set>
#include <vector>

#include "compiler/loops/tree.h"
#include "ir/target/target.h"

namespace braze {

struct Work {
  double instances = 1;   // of the grid
  double tile = 1;        // elements that one instance works on at a time
  double operations = 0;  // for all elements
  double products = 0;    // operations of dots on vector units
  // Operations of dots on matrix units, as if their factors had 16 bits.
  double matrix_products = 0;
  // What small tiles of tf32 take longer than large ones, in operations like `matrix_products`.
  double small_tiles = 0;
  double warp_products = 0;    // operations of dots of 16-bit factors on the matrix units of warps
  double read = 0;             // bytes of tensors that are read; what is read again counts once
  double written = 0;          // bytes of tensors that are written
  double loaded = 0;           // bytes that all instances load
  double lines = 0;            // bytes of the lines that the warps of a GPU load
  double cached_again = 0;     // bytes that later loops load again and that the shared cache holds
  double read_again = 0;       // bytes that later loops load again and that it does not hold
  double beside_products = 0;  // bytes that follow asynchronous dots and do not move beside them
  double slowly = 0;           // what these bytes cost, in bytes at the rate of memory
  double bulk_lines = 0;       // lines of bulk copies
  double turns = 1;            // of loops in which an instance waits for what it loads
  // Operations of dots of tiles that threads multiply on chip; and the same divided by the share of
  // the rate that they reach.
  double tile_products = 0, tile_time = 0;
  bool folds = false, multiplies = false, asynchronous = false;
  bool waits = false;  // whether elements are computed from folds over a tile with these elements
};

/// What a tree does, all of its instances together.
Work work_of(const LoopTree& tree, const Target& target);
/// Adds what the tasks load and store, and leave for later phases.
void add_traffic(const LoopTree& tree, const Target& target, Work& out);
/// Adds what follows asynchronous dots and takes time of its own: the threads that multiply move
/// it, a few accesses at a time.
void add_beside_products(const LoopTree& tree, Work& out);
/// The lines of memory that a bulk copy brings on chip. They go by rows of 128 bytes or less. If
/// the rows of the tensor are no whole lines, some of these lie in two, and if they are no whole
/// sectors, they take a part of one sector more.
double bulk_lines(const LoopTree& tree, const LoopTask& task,
                  const std::vector<const Loop*>& around);

/// The greatest value of an extent, at least 1.
double most(const Expr& extent);
/// The number of indices that a loop takes each time that it runs: the mean over the turns of the
/// loops around it on which its bounds depend.
double mean_length(const LoopTree& tree, const std::vector<const Loop*>& outside, const Loop& loop);
/// How often a task does something that depends on `axes` only, over its tile and the loops around
/// it. It is done before inner loops over axes on which it does not depend, and once in each turn
/// of all other loops. Where a loop looks for its terms, each of them is found by one instance.
double times(const LoopTree& tree, const std::vector<const Loop*>& around,
             const std::set<size_t>& axes);
/// The axes of a task's tile, with those along which it combines.
std::set<size_t> all_axes(const LoopTree& tree, const LoopTask& task);
double elements_along(const LoopTree& tree, const std::set<size_t>& axes);
double bytes_of(const LoopTensor& tensor);

}  // namespace braze
