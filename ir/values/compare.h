// compare.h — compares a tensor with the expected one: bit for bit, or within bounds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/values/host_tensor.h"

namespace braze {

/// The expected tensor: each element lies within `bound` of `value`. An element with bound 0 is
/// known exactly, bit for bit (any NaN equals NaN); one with an infinite bound can have any value.
struct Bounded {
  HostTensor value;  ///< f64 where the tensor is floating, else its own dtype
  std::vector<double> bound;
};

/// The number of elements about which a comparison says something. Each element counts in one of
/// the three members.
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
  int64_t max_ulps = 0;  ///< exact comparison: the greatest distance in units of the last place
  /// Comparison with bounds: the greatest |got - value| / bound of the judged elements and of the
  /// mismatches. If the only uncertainty is the last rounding, the bound is half an ulp. Among many
  /// elements, rounding to nearest then has an error close to the bound, so a ratio close to 1 is
  /// right as well.
  double max_ratio = 0;
  /// Comparison with bounds: the median of that ratio over the judged elements with a bound above
  /// 0; negative if there is no such element. If it is near 0, the bounds are too wide to tell
  /// much.
  double median_ratio = -1;
  int64_t worst = -1;
  std::string text;

  /// "equal", or "max error 0.31 of its bound at [3, 17]: got 1.5, expected 1.4 +- 0.3", followed
  /// by the number of elements that were not judged.
  const std::string& summary() const { return text; }
};

/// Compares dtype, shape and bits. Every NaN equals every NaN.
Comparison compare(const HostTensor& got, const HostTensor& expected);
/// Compares every element of `got` with its bound.
Comparison compare(const HostTensor& got, const Bounded& expected);

/// The number of steps from one float to the next that lead from one element to the other. The
/// distance of the two zeros is 0, and so is that of two NaNs. It is INT64_MAX if only one is NaN.
int64_t ulp_distance(DType dtype, uint64_t a, uint64_t b);

}  // namespace braze
