// cost.h — the estimated time of a kernel, which the cost model reads from its scheduled tree
// (0003, section 4).
//
// The estimates rank alternatives, and `braze explain --measure` prints them beside what kernels
// take. All constants stand in cost*.cpp or in the Target.
#pragma once

#include <string>

#include "compiler/loops/tree.h"
#include "ir/target/target.h"

namespace braze {

struct Cost {
  double bytes_read = 0;     ///< what is read of each input counts once
  double bytes_written = 0;  ///< without workspaces
  double flops = 0;          ///< machine operations, including those that are computed again
  double instances = 1;      ///< independent pieces of work
  double seconds = 0;
  double start_seconds = 0;  ///< the part of `seconds` in which nothing is computed yet

  /// "1.2 us: 64 KiB read, 16 KiB written, 1.1 Mflop, 4 instances".
  std::string to_string() const;
};

/// The cost of a tree after all steps of its schedule.
Cost cost_of(const LoopTree& tree, const Target& target);

/// The rate of dots of 16-bit factors on the fastest matrix units of a GPU, in operations per
/// second.
double matrix_rate(const Target& target);

/// How many times as fast as the ordinary units the matrix units multiply 16-bit factors, if single
/// warps use them.
double warp_matrix_speed(const Target& target);

/// The share of the rate of a multiprocessor's ordinary units that so many warps reach if they
/// multiply tiles on chip: each of its four units has its own warps, and more of them hide more of
/// the time that loads take. A thread multiplies `rows` by `columns` elements, which it loads for
/// each summed index. Fitted to the times of 17 tiles of attention in f32 on an H200.
double tile_share(double warps, double rows, double columns);

}  // namespace braze
