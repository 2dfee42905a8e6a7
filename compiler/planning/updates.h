// updates.h — decides which outputs can take over the memory of the input that they update.
//
// This is decided before tiling, because a kernel that reads and overwrites one memory must know
// that it does.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "compiler/fusion/space.h"
#include "ir/target/target.h"

namespace braze {

/// A Fusion with its space.
struct PlacedFusion {
  Fusion fusion;
  Space space;
};

struct Updates {
  std::set<uint32_t> in_place;  ///< outputs written straight into their input
  std::vector<std::pair<size_t, size_t>>
      orders;  ///< (reader of an input, Fusion that overwrites it)
  std::vector<std::map<NodeId, NodeId>>
      aliases;  ///< for each Fusion: input that it reads -> output in its place
};

/// An update happens in place if all other readers of the input can run before its writer, and if
/// the writer reads every element only where it writes that element, in the order in which its
/// loops run.
Updates decide_updates(const LoopForms& forms, const std::vector<PlacedFusion>& fusions,
                       const Target& target);

}  // namespace braze
