// tile_loops.h — makes the tile program of a Fusion for a Target: it builds the loop tree, lets the
// rules take steps, and emits the tree.
#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "compiler/fusion/fusion.h"
#include "compiler/fusion/inliner.h"
#include "compiler/loops/rules/rules.h"

namespace braze {

/// Everything on which the tile program of a kernel depends.
struct TilingRequest {
  const LoopForms& forms;
  const Fusion& fusion;
  const Target& target;
  std::string name;                       ///< of the kernel
  std::map<NodeId, NodeId> aliases = {};  ///< inputs -> the outputs that take over their memory
  /// For each node, whether its value need not be rounded where the graph says so
  /// (ir/graph/reference.h). Null means that all values are rounded there.
  const std::vector<bool>* relaxed = nullptr;
  /// For each node, whether coarse bodies may compute its math rows (ir/graph/coarse.h). Null means
  /// that they compute none.
  const std::vector<bool>* coarse = nullptr;
  /// For each node, whether approximate powers of two may compute its `exp` (ir/graph/coarse.h).
  const std::vector<bool>* powers = nullptr;
};

/// The tree before any step of a schedule.
LoopTree first_tree(const TilingRequest& request);

struct TiledKernel {
  TileProgram program;
  /// The nodes behind the program's memory parameters, in order: inputs, then outputs. An input
  /// whose memory an output takes over has no parameter of its own.
  std::vector<NodeId> parameters;
};

/// The tile program of a Fusion and the tree from which it was emitted.
struct TreeTiling {
  LoopTree tree;  ///< after the steps
  LoopTreeSteps steps;
  TiledKernel tiled;
  /// If it has dots that are not asynchronous: the reason.
  std::optional<Refusal> refused = {};
  /// If a task compares the index of its walk with an integer that is loaded, but this does not
  /// bound the walk: the reason.
  std::optional<Refusal> unlimited = {};
};
/// The tile program by the rules, or the reason why they serve no such kernel.
std::variant<TreeTiling, Refusal> tile_loops(const TilingRequest& request);
std::variant<TreeTiling, Refusal> tile_loops(LoopTree first, const Target& target);
/// The tile program by steps that the user gave. Throws if a step is wrong.
TreeTiling tile_loops(LoopTree first, const Target& target, const LoopTreeSteps& steps);

}  // namespace braze
