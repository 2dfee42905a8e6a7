// reference.h — computes which results a correct implementation of a Graph may return.
//
// The promises are these. A result of an elementwise or movement op that an output sees is rounded
// to its dtype (machine rows to 0.5 ulp; math rows to 1 ulp in f32, 4 in f64, 0.5 in 16 bits). A
// float that outputs see only through sums, products and contractions may be rounded elsewhere, or
// be off by 4 ulp. Some rows in f32 may be off by 2^-21 of their value if outputs see them only
// through roundings to 16 bits (coarse.h). Integers and bools, and the floats from which they are
// made, may not, whatever uses them. Where windows of such a float show a zero outside of it, that
// zero may have been multiplied: if the float has an infinity or NaN somewhere, it can be anything.
// Contractions may leave out the zeros that such windows put between elements, and those that a
// select on positions, integers and bools makes.
// Sums and contractions accumulate in f32 (those of f64 in f64), in any order. A sum of results of
// a contraction may be made from those of another one (interchange.h).
//
// The reference carries the consequences through the graph. A float is a value in f64 with an
// interval around it. Everything else is known or unknown: if a comparison or conversion depends on
// where in its interval an operand lies, both answers are right. Strict precision gives no leeway
// to values that only sums or roundings use, and fast precision gives it to all values.
#pragma once

#include <span>
#include <vector>

#include "braze/precision.h"
#include "ir/graph/graph.h"
#include "ir/graph/interchange.h"
#include "ir/values/compare.h"

namespace braze {

/// The outputs of `graph` for `inputs`, with bounds of how far an implementation may be off. The
/// reductions `by_nccl` are as NCCL makes them (AllShards::combinations): every partial result may
/// be rounded to the dtype of the operand, the greatest or least of a NaN and a number may be
/// either, and so may that of two zeros.
std::vector<Bounded> reference(const Graph& graph, std::span<const HostTensor> inputs,
                               Precision precision = Precision::Standard,
                               std::span<const NodeId> by_nccl = {});

/// For each node: whether it is a float that may be rounded elsewhere, because outputs see it only
/// through sums, products and contractions of floats. In strict precision none may be, and in fast
/// precision all may be.
std::vector<bool> relaxed_nodes(const Graph& graph, Precision precision = Precision::Standard);

/// For each node: how much more than a rounding it may be off.
struct Leeways {
  std::vector<bool> relaxed;  ///< it may be rounded elsewhere (relaxed_nodes)
  std::vector<bool> coarse;   ///< its rows may be computed coarsely (coarse.h)
  std::vector<bool> powers;   ///< so may its `exp`, by approximate powers of two
  std::vector<bool> by_nccl;  ///< NCCL makes it (see `reference`); empty if no node is so
  std::vector<Interchange> interchanges = {};  ///< of sums that may be made in this form, too
};
Leeways leeways(const Graph& graph, Precision precision = Precision::Standard);

/// The bounds of a part of a larger graph, which decides how much more than a rounding its nodes
/// may be off.
std::vector<Bounded> reference(const Graph& graph, std::span<const HostTensor> inputs,
                               const Leeways& leeways);

}  // namespace braze
