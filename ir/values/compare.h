// compare.h — how far a tensor is from what it should be: bit for bit, or against a bound.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/values/host_tensor.h"

namespace braze {

/// A tensor of which every element is known to lie within `bound` of `value`. An element with bound
/// 0 is known exactly, bit for bit (any NaN for NaN); with an infinite bound it can be anything.
struct Bounded {
  HostTensor value;  ///< f64 where the tensor is floating, else its own dtype
  std::vector<double> bound;
};

/// What a comparison found. `worst` is the element that is furthest out.
struct Comparison {
  bool ok = true;
  int64_t elements = 0;
  int64_t mismatches = 0;
  int64_t unknown = 0;   ///< elements with an infinite bound, which always pass
  int64_t max_ulps = 0;  ///< exact: the greatest distance in units of the last place
  double max_ratio = 0;  ///< bounded: the greatest |got - value| / bound
  /// Bounded: the median of that ratio over the elements with a finite bound above 0; below 0 if
  /// there is none. Near 0 the bound says little.
  double median_ratio = -1;
  int64_t worst = -1;
  std::string text;

  /// "equal", or "max error 0.31 of its bound at [3, 17]: got 1.5, expected 1.4 +- 0.3".
  const std::string& summary() const { return text; }
};

/// Same dtype, shape and bits, where every NaN equals every NaN.
Comparison compare(const HostTensor& got, const HostTensor& expected);
/// Every element of `got` within its bound.
Comparison compare(const HostTensor& got, const Bounded& expected);

/// How many steps from float to next float lead from one element to the other. The two zeros are 0
/// apart, two NaNs too; INT64_MAX if just one is NaN.
int64_t ulp_distance(DType dtype, uint64_t a, uint64_t b);

}  // namespace braze
