// updates.h — which outputs can take over the memory of the input that they update.
//
// Decided before tiling, since a kernel that reads an input and writes over it must know that the
// two are one memory.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "compiler/fusion/space.h"

namespace braze {

/// A Fusion and its space.
struct PlacedFusion {
  Fusion fusion;
  Space space;
};

struct Updates {
  std::set<uint32_t> in_place;  ///< outputs written straight into their input
  std::vector<std::pair<size_t, size_t>>
      orders;  ///< (reader of an input, fusion that writes over it)
  std::vector<std::map<NodeId, NodeId>>
      aliases;  ///< per fusion: input it reads -> output in its place
};

/// An update happens in place if all other readers of the input can run before its writer, and the
/// writer itself reads every element only where it writes it.
Updates decide_updates(const LoopForms& forms, const std::vector<PlacedFusion>& fusions);

}  // namespace braze
