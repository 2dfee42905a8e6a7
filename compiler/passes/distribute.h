// distribute.h — turns a graph of whole tensors into the graph that each device of a mesh runs.
//
// Inputs, `constrain` and outputs say how some values are spread. The loop forms of the other nodes
// determine how their values are spread: a loop is cut along a symbol if the blocks of the symbol
// are the blocks of every axis that is read through it. If a summed symbol is cut, each device has
// a partial sum, and a collective combines these to the whole value, or to the block that is
// wanted. No bytes move for a value that all devices have: each takes its block. Statements that
// contradict each other are an error: nothing is guessed. docs/design/0005-many-devices.md has the
// rules.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "braze/sharding.h"
#include "ir/graph/graph.h"
#include "ir/target/target.h"

namespace braze {

namespace reasons {
inline constexpr Code kPartial{"partial", ErrorKind::Unsupported,
                               "Each device has combined its part only."};
inline constexpr Code kSaid{"said", ErrorKind::Unsupported,
                            "It is to be spread otherwise than it is made."};
inline constexpr Code kWhole{"whole", ErrorKind::Unsupported,
                             "The reader needs the whole of an axis that is cut."};
}  // namespace reasons

/// A collective that distribute inserted.
struct InsertedCollective {
  const Code* reason = nullptr;
  CollectiveOp op = {};
  Expr bytes = {};    ///< the bytes that each device receives
  std::string value;  ///< its operand: "dot, f32[8, 64] on each device, at model.cpp:7"
};

struct Distributed {
  Graph graph;  ///< of each device; its inputs and outputs are shards
  std::vector<Sharding> inputs = {}, outputs = {};
  std::vector<InsertedCollective> collectives = {};

  /// One line for each collective: its reason, its bytes, and the time that it would take alone on
  /// the target. It is empty if there is no collective.
  std::string explanation(const Target& target) const;
};

/// `inputs` and `outputs` say how each of them is spread. If nothing is said about an input, it is
/// spread as the `constrain` that reads it says, and whole without one. If nothing is said about an
/// output, it stays spread as it is computed, or, if it updates an input, as that input. Statements
/// that cannot hold throw InvalidArgument, which names the fix.
Distributed distribute(const Graph& graph, std::span<const MeshAxis> mesh,
                       std::span<const std::optional<Sharding>> inputs,
                       std::span<const std::optional<Sharding>> outputs);

}  // namespace braze
