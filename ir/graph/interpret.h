// interpret.h — the meaning of a Graph, by direct execution. Everything else is tested against
// this.
//
// Every node is computed in its own dtype. Machine rows are evaluate_machine; math rows are libm in
// double, rounded once; formula rows are their bodies. Float sums, products and contractions
// accumulate in f64 (f64 itself with compensation) and round once, so that they are the value that
// implementations approximate; reference.h says how far these may be off. tf32 is leave that the
// interpreter does not take.
#pragma once

#include <span>
#include <vector>

#include "ir/graph/graph.h"
#include "ir/graph/sizes.h"

namespace braze {

namespace codes {
inline constexpr Code kIndexOutOfRange{"index-out-of-range", ErrorKind::InvalidArgument,
                                       "An index of gather or scatter is out of range."};
inline constexpr Code kEmptyArgReduce{"empty-arg-reduce", ErrorKind::InvalidArgument,
                                      "argmax and argmin have no result over an empty axis."};
inline constexpr Code kNeedsMesh{"needs-mesh", ErrorKind::InvalidArgument,
                                 "A graph for the devices of a mesh was run on one device alone."};
}  // namespace codes

/// The outputs of `graph` for `inputs`, in order. Nodes that no output needs are not computed.
std::vector<HostTensor> interpret(const Graph& graph, std::span<const HostTensor> inputs);

/// Throws kNeedsMesh: what the node makes depends on other devices, or on which one this is.
[[noreturn]] void fail_needs_mesh(const Node& node);

/// The value of one node, not an input, for the values of its operands.
HostTensor evaluate(const Node& node, std::span<const HostTensor* const> operands,
                    const Sizes& sizes = {});

/// One elementwise row. Operands have one shape, or rank 0.
HostTensor evaluate_map(ElementwiseOp op, std::span<const HostTensor* const> operands,
                        DType result);

/// A math row by libm in double; rows of one operand ignore `y`.
double evaluate_math(ElementwiseOp op, double x, double y = 0);

/// Fails, naming the index and its position, unless 0 <= index < extent.
void check_index(const Node& node, int64_t index, int64_t position, int64_t extent);

/// How often each node is used, by other nodes and as output. Zero: no output needs it.
std::vector<uint32_t> count_uses(const Graph& graph);

}  // namespace braze
