// windowed_dots.h — sums over the taps of windows of products.
//
// The gradient of a product over windows, in the direction of what the windows show, is a product
// with all taps in its result, then windows that bring together what belongs to a place, and a sum
// over the taps. The result of that product is as many times larger than a factor as there are
// taps. If the axes of the windows are those of one factor, and the taps those of the other, then
// windows of the one factor multiplied by the other give the same sum, and the taps are summed by
// the product.
//
// This moves a rounding into a sum and changes the order of the sum. It also multiplies zeros
// around the factor by elements of the other one: if these are infinite, NaN is a result.
#pragma once

#include "ir/graph/graph.h"

namespace braze {

/// Matrix units need so many terms in a tap. Narrower products in groups are left as they are:
/// their windows would be read once for each tap and each group. But threads make sums of half as
/// many, if these have few terms in all (narrow_dots.h).
inline constexpr int64_t kTermsOfMatrixUnits = 4;

/// The graph in which sums over the taps of zero-filled windows of products are products over
/// windows. Products whose results are seen otherwise stay, and so do products in groups with fewer
/// than `least_terms` terms in a tap.
Graph windowed_dots(const Graph& graph, int64_t least_terms = 1);

}  // namespace braze
