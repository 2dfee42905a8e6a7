// updates.h — decides which outputs can take over the memory of the input that they update.
//
// This is decided before tiling, because the schedule of a kernel depends on whether it overwrites
// memory that it also reads.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "compiler/fusion/fusion.h"
#include "compiler/fusion/inliner.h"
#include "ir/target/target.h"

namespace braze {

struct Updates {
  std::set<uint32_t> in_place;  ///< outputs written straight into their input
  std::vector<std::pair<size_t, size_t>>
      orders;  ///< (reader of an input, Fusion that overwrites it)
  std::vector<std::map<NodeId, NodeId>>
      aliases;  ///< for each Fusion: input that it reads -> output in its place
};

/// An update happens in place if two things hold: all other readers of the input can run before the
/// kernel that writes it; and this kernel reads each element only in the turn of its loops that
/// writes the element.
Updates decide_updates(const LoopForms& forms, const std::vector<Fusion>& fusions,
                       const Target& target);

}  // namespace braze
