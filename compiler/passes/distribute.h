// distribute.h — from a graph of whole tensors to what one device of a mesh does.
//
// Inputs, `constrain` and outputs say how some values are spread. What follows for the others is
// read off their loop forms: a loop is cut along a symbol if the blocks of the symbol are the
// blocks of every axis that is read through it. A sum over a symbol that is cut is a part on each
// device, and a collective makes it the whole, or the block of it that is wanted. No bytes move for
// a value that all devices have: each takes its block. Where two statements cannot hold at once,
// that is an error: nothing is guessed. docs/design/0005-many-devices.md has the rules.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "braze/sharding.h"
#include "ir/graph/graph.h"

namespace braze {

namespace reasons {
inline constexpr Code kPartial{"partial", ErrorKind::Unsupported,
                               "Each device has combined its part only."};
inline constexpr Code kSaid{"said", ErrorKind::Unsupported,
                            "It is to be spread otherwise than it is made."};
inline constexpr Code kWhole{"whole", ErrorKind::Unsupported,
                             "The reader needs the whole of an axis that is cut."};
}  // namespace reasons

/// What distribute inserted.
struct InsertedCollective {
  const Code* reason = nullptr;
  CollectiveOp op = {};
  Expr bytes = {};    ///< that each device receives
  std::string value;  ///< what it is done to: "dot, f32[8, 64] on each device, at model.cpp:7"
};

struct Distributed {
  Graph graph;  ///< of each device; its inputs and outputs are shards
  std::vector<Sharding> inputs = {}, outputs = {};
  std::vector<InsertedCollective> collectives = {};

  /// One line for each collective, with its reason and bytes; empty if there is none.
  std::string explanation() const;
};

/// `inputs` and `outputs` say how each is spread. An input of which nothing is said comes as the
/// `constrain` that reads it says, else whole. An output of which nothing is said goes as it is
/// made, or, if it updates an input, as that. InvalidArgument, with the fix, for what cannot be.
Distributed distribute(const Graph& graph, std::span<const MeshAxis> mesh,
                       std::span<const std::optional<Sharding>> inputs,
                       std::span<const std::optional<Sharding>> outputs);

}  // namespace braze
