// cost.h — estimated time of a Fusion: bytes moved, operations, launches, lost parallelism.
//
// The figures rank alternatives; they do not predict clocks. All constants stand in cost.cpp or in
// the Target.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "compiler/fusion/space.h"
#include "compiler/loops/steps/refusal.h"
#include "ir/target/target.h"

namespace braze {

struct Cost {
  double bytes_read = 0;  ///< each input counts once
  double bytes_written = 0;
  double flops = 0;      ///< machine operations, including what is recomputed
  double instances = 1;  ///< independent pieces of work
  double seconds = 0;

  /// "1.2 us: 64 KiB read, 16 KiB written, 1.1 Mflop, 4 instances".
  std::string to_string() const;
};

/// The cost of computing `fusion` over `space` on `target`; none if its results, which reduce
/// nothing, share no loops.
std::optional<Cost> estimate(const LoopForms& forms, const Fusion& fusion, const Space& space,
                             const Target& target);

/// The cost of a Fusion that only a loop tree can express, or the reason why no loop tree can.
/// `relaxed` are nodes that may take another form.
std::variant<Cost, Refusal> estimate_by_tree(const LoopForms& forms, const Fusion& fusion,
                                             const Target& target,
                                             const std::vector<bool>& relaxed);

/// Whether a dot, which is much larger than its factors, is computed on matrix units in less time
/// than its elements take to memory and back.
bool is_cheaper_again(const LoopForms& forms, NodeId dot, const Target& target);

/// The number of operations to compute `node` once at one index, through the nodes that are
/// `inside`, but not through reductions.
double recompute_flops(const LoopForms& forms, const std::vector<bool>& inside, NodeId node);

}  // namespace braze
