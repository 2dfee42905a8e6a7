// search_by_halves.h — a search among sorted values, as elementwise ops and gathers of a graph.
#pragma once

#include <bit>
#include <cstdint>

#include "ir/ops/elementwise.h"
#include "ir/ops/scalar.h"

namespace braze {

/// For each element, the least number from `least` to `most` for which `is_before` does not hold,
/// or `most` if it holds for all below. `is_before(n)`, a bool of the graph, holds up to some
/// number and for none beyond it; it is also asked of `most`, where its value does not matter.
/// `most - least` is at most `span`: the search is unrolled, and takes as many steps as `span` has
/// bits.
template <class IsBefore>
Scalar search_by_halves(Scalar least, Scalar most, int64_t span, const IsBefore& is_before) {
  for (int left = std::bit_width(static_cast<uint64_t>(span)); left > 0; --left) {
    const Scalar one = least.constant(1), middle = shr(least + most, one);
    const Scalar before = is_before(middle), after = logical_and(before, lt(least, most));
    most = select(after, most, middle);
    least = select(after, middle + 1, least);
  }
  return least;
}

}  // namespace braze
