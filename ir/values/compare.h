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

/// How many elements a comparison says something of. Every element is one of the three.
struct Coverage {
  int64_t judged = 0;
  /// The bound says almost nothing: it is infinite, or exceeds a tenth of the greatest finite
  /// magnitude in the tensor. Only values beyond such a bound are wrong.
  int64_t unjudged = 0;
  int64_t nonfinite = 0;  ///< elements that must be infinite or NaN, and are compared as such

  /// The share of finite elements that were judged; 1 if there are none.
  double share() const;
  /// Whether no element was judged although some should have been.
  bool vacuous() const { return judged == 0 && unjudged > 0; }
  Coverage& operator+=(const Coverage& other);
};

/// The result of a comparison. `worst` is the element that is furthest from its value.
struct Comparison {
  bool ok = true;  ///< no element is out of its bound
  int64_t elements = 0;
  int64_t mismatches = 0;
  Coverage coverage;
  int64_t max_ulps = 0;  ///< exact: the greatest distance in units of the last place
  /// Bounded: the greatest |got - value| / bound of the judged elements and of the mismatches.
  /// Where only the last rounding is left open the bound is half an ulp, of which rounding to
  /// nearest takes nearly all in some of many elements: close to 1 is right as well.
  double max_ratio = 0;
  /// Bounded: the median of that ratio over the judged elements with a bound above 0; below 0 if
  /// there is none. Near 0 the bound says little.
  double median_ratio = -1;
  int64_t worst = -1;
  std::string text;

  /// "equal", or "max error 0.31 of its bound at [3, 17]: got 1.5, expected 1.4 +- 0.3", followed
  /// by what was not judged.
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
