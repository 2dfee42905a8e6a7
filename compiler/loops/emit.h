// emit.h — translates a loop tree to a tile program by the rules E1 to E18 of
// docs/design/0003-loop-tree.md, section 5. Emission decides nothing: if neither the tree nor its
// marks say how something is done, it refuses.
#pragma once

#include "compiler/loops/tree.h"
#include "ir/code/code.h"

namespace braze {

namespace codes {
inline constexpr Code kNoEmission{"no-emission", ErrorKind::Unsupported,
                                  "A loop tree cannot be emitted as a tile program."};
}  // namespace codes

/// The tile program of a sound tree. It is pipelined if the tree has roles, and plain otherwise.
/// Its parameters are the tree's tensors, in order. Throws `no-emission`.
TileProgram emit(const LoopTree& tree);

}  // namespace braze
