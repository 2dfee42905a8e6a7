// emitter.h — from a Fusion, its space and a Schedule to a tile program.
//
// All loop-shaped families share this emitter and differ only in the Schedule. Values become tiles
// with one dimension for each tiled axis, with extent 1 if a value does not depend on the axis. The
// inner loop of a contraction is therefore an fma of [m, 1] and [1, n] tiles, without any special
// case.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/fusion/space.h"
#include "compiler/tiling/schedule.h"
#include "ir/code/code.h"
#include "ir/target/target.h"

namespace braze {

struct TiledKernel {
  TileProgram program;
  /// The nodes behind the program's memory parameters, in order: inputs, then outputs; an input
  /// that an output takes over has none of its own.
  std::vector<NodeId> parameters;
};

/// Everything that a tiling rule needs to know.
struct TilingRequest {
  const LoopForms& forms;
  const Fusion& fusion;
  const Target& target;
  std::string name;                       ///< of the kernel
  std::map<NodeId, NodeId> aliases = {};  ///< inputs that an output takes over -> that output
  /// By node: whether it need not be rounded where the graph says so (ir/graph/reference.h). Null:
  /// none.
  const std::vector<bool>* relaxed = nullptr;
};

/// Emits the tile program of `schedule`. Internal if the schedule does not fit the space.
TiledKernel emit_tiles(const TilingRequest& request, const Space& space, const Schedule& schedule);

/// A space whose adjacent axes are merged where every access of the fusion runs through
/// them with one stride.
Space collapse(const LoopForms& forms, const Fusion& fusion, const Space& space);

}  // namespace braze
