// interchange.h — sums of the results of a product, in which two sums may change places.
//
//   sum over j of a[i, j] * (sum over c of b[i, c] * v[j, c])
//     = sum over c of b[i, c] * (sum over j of a[i, j] * v[j, c])
//
// The left side reads the product b x v, and the right one the product a x v. If the graph computes
// both products anyway, and the one on the right is much smaller, the right side reads less, and it
// does not wait for the product on the left. The gradient of a quotient by a row's sum, in front of
// a product, contains such a sum.
//
// This is linearity, so it holds for any a, b and v if b does not vary along j. What multiplies or
// divides the terms besides b x v (scales, masks by 0, factors of dropout) is a. It must be what
// the other product multiplies with v, up to factors that do not vary along j, which stay in front
// of the sum. What it is follows from the factors alone, through products, quotients, negations,
// movement, and conversions between floats.
//
// The value differs as follows. The terms a * b * v are added in another order, so the result may
// be off by gamma_n times the sum of all |a b v|, n being the number of values of j and c. Where a
// is rounded to 16 bits in front of v, and where the other product is rounded, the result has these
// roundings instead of that of b x v. The reference (reference.h) computes both sides, and permits
// what lies between. If a, b or v has an infinity or NaN, one side may be an infinity where the
// other one is NaN. Strict precision forbids all of this.
#pragma once

#include <functional>
#include <vector>

#include "braze/precision.h"
#include "ir/graph/graph.h"

namespace braze {

namespace interchanges {
inline constexpr Code kInterchanged{
    "interchanged", ErrorKind::Unsupported,
    "The sum is made from another product of one of the factors, which is computed anyway and is "
    "much smaller."};
inline constexpr Code kVaries{
    "both-factors-vary", ErrorKind::Unsupported,
    "The axes of the sum are not those of one factor of the product alone, so the sums cannot "
    "change places."};
inline constexpr Code kSeen{
    "seen-elsewhere", ErrorKind::Unsupported,
    "The product, or what is made of it for the sum, is also seen by an output, an integer or a "
    "condition, so it keeps its roundings."};
inline constexpr Code kNoOther{"no-other-product", ErrorKind::Unsupported,
                               "No other product sums the same factor along the axes of the sum."};
inline constexpr Code kFactorsDiffer{
    "factors-differ", ErrorKind::Unsupported,
    "The other product multiplies its factor by something else than the sum does."};
inline constexpr Code kLater{"computed-later", ErrorKind::Unsupported,
                             "What the other product multiplies does not exist before the sum."};
inline constexpr Code kNotSmaller{
    "not-smaller", ErrorKind::Unsupported,
    "The other product has more than half as many elements, so reading it saves nothing."};
inline constexpr Code kCoarser{
    "coarser", ErrorKind::Unsupported,
    "The other product takes its factors as tf32, and this one does not."};
inline constexpr Code kLayout{
    "layout", ErrorKind::Unsupported,
    "The other product has its axes in a form that no reshape, transpose or broadcast gives the "
    "sum."};
}  // namespace interchanges

/// A sum over axes of terms that contain a result of a dot, and whether its sums change places.
struct Interchange {
  /// A value at coordinates over the symbols of `symbols`.
  struct Factor {
    enum class Use : uint8_t { Times, Over, If, Unless };  ///< the last two: else 0

    NodeId node;
    std::vector<Expr> at;
    Use use = Use::Times;
    friend bool operator==(const Factor&, const Factor&) = default;
  };

  NodeId sum, product;
  const Code* verdict = &interchanges::kInterchanged;  ///< else why not

  // If it is interchanged, the sum is that of `b * other` over the last of the axes that `shape`
  // describes, those of its result being the first; then `outer` are applied to it.
  NodeId other = {};
  Factor b = {}, of_other = {};
  std::vector<Factor> outer = {};
  bool negative = false;
  std::vector<Expr> symbols = {};  ///< of each axis
  Shape shape = {};
};

/// All sums of results of dots that the outputs need, in the order of the graph, each once for each
/// of its dots.
std::vector<Interchange> find_interchanges(const Graph& graph,
                                           Precision precision = Precision::Standard);

/// Adds the interchanged form of a sum of `source` to `graph`, where `place` gives the node of
/// `graph` for a node of `source`.
NodeId interchanged(Graph& graph, const Graph& source, const Interchange& form,
                    const std::function<NodeId(NodeId)>& place);

}  // namespace braze
