// coarse.h: rows that may be computed with a few bits less than f32 has.
//
// If outputs see an f32 only through roundings to 16 bits, an error of 2^-21 of its value is far
// below what the roundings lose. Some math rows have a body that is cheaper with this error, the
// coarse body (ir/ops/math_bodies.h), and a quotient may be a product with a reciprocal. All of it
// consists of exact machine rows, so that all machines give the same bits, and the graph alone
// decides where it is taken, so that the bits do not depend on what is fused. Behind reductions,
// whose bits belong to the machine, `exp` may also be the machine's approximate power of two.
// Strict precision takes none of it.
//
// A formula whose rows round again and again need not be computed by these rows either: gelu has a
// short body for f32, which is nearer to the exact value than its formula where that is far below
// 0. It is taken in every precision, unless the graph computes the math rows of the formula anyway
// (compiler/passes/expand.h).
#pragma once

#include <optional>
#include <vector>

#include "ir/graph/graph.h"

namespace braze {

/// Whether the row has a coarse body, for f32.
bool has_coarse_body(ElementwiseOp op);

/// The coarse body of the row on an f32.
Scalar coarse_body(ElementwiseOp op, const Scalar& x);

/// Whether the formula row has a short body for this dtype: one within 2^-21 of the exact value.
bool has_short_body(ElementwiseOp op, DType dtype);

/// The short body of the row on an f32.
Scalar short_body(ElementwiseOp op, const Scalar& x);

/// Whether the row may have an error of 2^-21 in f32 where `coarse_nodes` permits it: it has a
/// coarse body, or is a quotient.
bool may_be_coarse(ElementwiseOp op);

/// For each node: whether the rows in f32 of which it consists may be computed coarsely, because
/// outputs see them only through roundings to 16 bits and through sums, products and contractions
/// of floats.
std::vector<bool> coarse_nodes(const Graph& graph);

/// The same, as if the node were the only output. Other nodes may be outputs, or may come later.
std::vector<bool> coarse_nodes(const Graph& graph, NodeId output);

/// The node e^(x - g), in f32, that the node sums over 64 elements or more, where g is made only of
/// the greatest x of the same sum. The machine's approximate 2^x may then compute it. The greatest
/// of the n terms is 1, and the mean |x - g|, weighted by the terms, is at most ln n. So the
/// rounding of the exponent and the error of 2^x change the sum by at most (4 + 1.5 ln n) 2^-24 of
/// itself, which is less than the n 2^-24 that the order of additions may change.
std::optional<NodeId> summed_power(const Graph& graph, const Node& sum);

/// For each node: whether an `exp` in f32 of which it consists may be the machine's approximate 2^x
/// wherever it is computed, because outputs see it only through roundings to 16 bits and through
/// sums as above. The argument is rounded once more, the power has an error of 2^-21 of itself, and
/// one below 2^-126 may be 0. The node must depend on a reduction: without reductions, results have
/// the same bits on all machines.
std::vector<bool> approximate_powers(const Graph& graph);

/// Whether the node sums or multiplies many floats, in an order that is not determined.
bool accumulates(const Node& node);

/// For each node: whether an output sees it other than through nodes that `hide` their operands.
/// What decides an integer or a bool is seen.
std::vector<bool> seen_nodes(const Graph& graph, bool (*hides)(const Graph&, const Node&));

}  // namespace braze
