// tile_loops.h — makes a tile program from a Fusion and a Target by a loop tree: build, rules,
// steps, emission.
#pragma once

#include <variant>

#include "compiler/loops/rules/rules.h"
#include "compiler/tiling/emitter.h"

namespace braze {

/// The result for a Fusion, or why no loop tree can serve it yet.
struct TreeTiling {
  LoopTree tree;  ///< after the steps
  TiledKernel tiled;
};
std::variant<TreeTiling, Refusal> tile_loops(const TilingRequest& request);
/// Uses steps that the user gave. A fault in them is an error.
TreeTiling tile_loops(const TilingRequest& request, const LoopTreeSteps& steps);

}  // namespace braze
