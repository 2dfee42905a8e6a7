// verify.h — finds everything that is wrong with a Graph.
#pragma once

#include <vector>

#include "braze/error.h"
#include "ir/graph/graph.h"

namespace braze {

namespace codes {
inline constexpr Code kUndefinedOperand{"undefined-operand", ErrorKind::InvalidArgument,
                                        "A node uses a value that does not come before it."};
inline constexpr Code kWrongType{"wrong-type", ErrorKind::InvalidArgument,
                                 "The type of a node is not the type of the op's result."};
inline constexpr Code kBadInput{"bad-input", ErrorKind::InvalidArgument,
                                "Two inputs share a name, or an input has none."};
inline constexpr Code kBadOutput{"bad-output", ErrorKind::InvalidArgument,
                                 "An output is not a value, has the name of another output, or "
                                 "updates an input that it cannot replace."};
inline constexpr Code kReservedSymbol{"reserved-symbol", ErrorKind::InvalidArgument,
                                      "A size has the name of a word of the language."};
inline constexpr Code kSymbolConflict{"symbol-conflict", ErrorKind::InvalidArgument,
                                      "One symbol occurs with two different ranges."};
inline constexpr Code kMeshConflict{
    "mesh-conflict", ErrorKind::InvalidArgument,
    "One axis of a mesh occurs with two different sizes, or is named twice."};
}  // namespace codes

/// Everything wrong with `graph`; empty if it is sound. Never throws.
std::vector<Diagnostic> verify(const Graph& graph);

}  // namespace braze
