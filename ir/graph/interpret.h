// interpret.h — executes a Graph directly, which defines its meaning. Everything else is tested
// against this.
//
// Every node is computed in its own dtype. Machine rows are evaluated by evaluate_machine, math
// rows by libm in double with one rounding, and formula rows by their bodies. Sums, products and
// contractions of floats accumulate in f64 (those of f64 with compensation) and round once. This is
// the value that implementations approximate; reference.h says how far they may be off. The
// interpreter makes no use of the permission to round to tf32.
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

/// The outputs of `graph` for `inputs`, in order. Nodes that no output needs are not computed,
/// unless they have side effects. A custom call calls the function for memory of the host.
std::vector<HostTensor> interpret(const Graph& graph, std::span<const HostTensor> inputs);

/// Throws kNeedsMesh for a node whose value depends on other devices, or on which device this is.
[[noreturn]] void fail_needs_mesh(const Node& node);

/// The value of one node, not an input, for the values of its operands.
HostTensor evaluate(const Node& node, std::span<const HostTensor* const> operands,
                    const Sizes& sizes = {});

/// The value of one elementwise row. The operands have the same shape, or rank 0.
HostTensor evaluate_map(ElementwiseOp op, std::span<const HostTensor* const> operands,
                        DType result);

/// The value of a math row, by libm in double. Rows with one operand ignore `y`.
double evaluate_math(ElementwiseOp op, double x, double y = 0);

/// Fails, naming the index and its position, unless 0 <= index < extent.
void check_index(const Node& node, int64_t index, int64_t position, int64_t extent);

/// The number of uses of each node: by other nodes, as an output, and by its side effects. 0: the
/// node is not computed.
std::vector<uint32_t> count_uses(const Graph& graph);

}  // namespace braze
