// order_factors.h — the order in which factors of products lie in memory.
//
// The matrix units of a GPU get the factors of a product by copies, and these read a factor only if
// its innermost axis in memory is one axis of the product: a row of channels, but not a row of
// pixels, which windows read along two axes. If the units cannot read a factor, it is copied once
// to an order in which they can, where that is estimated to take less time. The order is that of a
// transpose which is transposed back (ir/graph/reordered.h). What makes the factor can write it in
// this order, since fusion joins a transpose with what it reads.
//
// Asynchronous units read tf32 only along the summed axes, and those of warps along any. Where the
// asynchronous ones would be faster, factors get their summed axes innermost, and products with few
// tiles become sums of partial products.
#pragma once

#include <string>
#include <vector>

#include "ir/graph/graph.h"
#include "ir/graph/reference.h"
#include "ir/target/target.h"

namespace braze {

/// The verdict on a product whose factors the matrix units cannot read as they are.
struct FactorOrders {
  std::string product;  ///< "%y"
  /// What is copied, and to which order of its axes: "%x as [0, 2, 3, 1]". Empty if nothing is.
  std::vector<std::string> copies;
  /// Whether copies are made, axes are summed in another order, or parts are summed.
  bool changed = false;
  bool in_parts = false;  ///< whether the product becomes the sum of partial products
  /// Seconds. There is no second one if matrix units could read the factors in no other order.
  double as_it_is = 0, in_order = 0;

  /// "%y: 1.05e+03 us as it is, 73.1 us with copies of %x as [0, 2, 3, 1]".
  std::string to_string() const;
};

struct OrderedFactors {
  Graph graph;
  std::vector<FactorOrders> verdicts;  ///< in the order of the graph
};

/// The graph in which factors of large products of 16-bit values, or of tf32, are in the orders
/// that have the least price, for a GPU with matrix units. Products of which the best units read
/// both factors where they are stay as they are.
OrderedFactors order_factors(const Graph& graph, const Target& target,
                             Precision precision = Precision::Standard);

}  // namespace braze
