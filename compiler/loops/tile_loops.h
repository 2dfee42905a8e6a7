// tile_loops.h — Fusion + Target -> tile program, by a loop tree: build, rules, steps, emission.
#pragma once

#include <variant>

#include "compiler/loops/rules/rules.h"
#include "compiler/tiling/emitter.h"

namespace braze {

/// What became of a Fusion, or why this way does not serve it yet.
struct TreeTiling {
  LoopTree tree;  ///< after the steps
  TiledKernel tiled;
};
std::variant<TreeTiling, Refusal> tile_loops(const TilingRequest& request);
/// By steps that somebody gave. What is wrong with them is an error.
TreeTiling tile_loops(const TilingRequest& request, const LoopTreeSteps& steps);

}  // namespace braze
