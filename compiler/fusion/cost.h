// cost.h — the estimated time of a Fusion, from its bytes, operations, launches and instances.
//
// The estimates rank alternatives; they do not predict clocks. All constants stand in cost.cpp or
// in the Target.
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
  double flops = 0;      ///< machine operations, including those that are computed again
  double instances = 1;  ///< independent pieces of work
  double seconds = 0;

  /// "1.2 us: 64 KiB read, 16 KiB written, 1.1 Mflop, 4 instances".
  std::string to_string() const;
};

/// The cost of computing `fusion` over `space` on `target`. None if no rule can tile it: it may
/// reduce nothing and have results that share no loops.
std::optional<Cost> estimate(const LoopForms& forms, const Fusion& fusion, const Space& space,
                             const Target& target, const std::vector<bool>& relaxed);

/// The cost of a Fusion that only a loop tree can express, or the reason why no loop tree can.
/// `relaxed` says, for each node, whether it may be computed in another form.
std::variant<Cost, Refusal> estimate_by_tree(const LoopForms& forms, const Fusion& fusion,
                                             const Target& target,
                                             const std::vector<bool>& relaxed);

/// Whether computing `dot` again on matrix units takes less time than writing its elements to
/// memory and reading them back. This can only hold for a dot that is much larger than its factors.
bool is_cheaper_again(const LoopForms& forms, NodeId dot, const Target& target);

/// The number of operations to compute `node` once at one index, together with the nodes before it
/// for which `inside` holds, up to reductions.
double recompute_flops(const LoopForms& forms, const std::vector<bool>& inside, NodeId node);

}  // namespace braze
