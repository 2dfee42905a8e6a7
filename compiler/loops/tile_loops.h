// tile_loops.h — makes a tile program from a Fusion and a Target by a loop tree: build, rules,
// steps, emission.
#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "compiler/fusion/fusion.h"
#include "compiler/fusion/inliner.h"
#include "compiler/loops/rules/rules.h"

namespace braze {

/// Everything that decides the tile program of a kernel.
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

struct TiledKernel {
  TileProgram program;
  /// The nodes behind the program's memory parameters, in order: inputs, then outputs; an input
  /// that an output takes over has none of its own.
  std::vector<NodeId> parameters;
};

/// The result for a Fusion, or why no loop tree can serve it yet.
struct TreeTiling {
  LoopTree tree;  ///< after the steps
  TiledKernel tiled;
  /// Why it has no asynchronous products, if it has dots.
  std::optional<Refusal> refused = {};
};
std::variant<TreeTiling, Refusal> tile_loops(const TilingRequest& request);
/// Uses steps that the user gave. A fault in them is an error.
TreeTiling tile_loops(const TilingRequest& request, const LoopTreeSteps& steps);

}  // namespace braze
