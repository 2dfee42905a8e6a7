// updates.h — which outputs can take over the memory of the input that they update.
//
// This is decided before tiling, because a kernel that reads an input and overwrites it must know
// that both are one memory.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "compiler/fusion/space.h"

namespace braze {

/// A Fusion with its space.
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

/// An update happens in place if all other readers of the input can run before its writer, and if
/// the writer itself reads every element only at the place where it writes that element.
Updates decide_updates(const LoopForms& forms, const std::vector<PlacedFusion>& fusions);

}  // namespace braze
