// emit.h — from a loop tree to a tile program, by the rules E1 to E18 of
// docs/design/0003-loop-tree.md, section 5. Nothing is decided here: what the tree and its marks
// do not say is refused.
#pragma once

#include "compiler/loops/tree.h"
#include "ir/code/code.h"

namespace braze {

namespace codes {
inline constexpr Code kNoEmission{"no-emission", ErrorKind::Unsupported,
                                  "A loop tree cannot be emitted as a tile program."};
}  // namespace codes

/// The tile program of a sound tree: a pipelined one if the tree has roles, else a plain one.
/// Parameters are the tree's tensors, in order.
TileProgram emit(const LoopTree& tree);

}  // namespace braze
