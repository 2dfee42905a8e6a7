#include "ir/values/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/ops/scalar.h"
#include "ir/support/text.h"

namespace braze {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A bound judges an element if it is at most this share of the greatest magnitude in the tensor.
constexpr double kTellingShare = 0.1;

std::string index_text(const std::vector<int64_t>& shape, int64_t element) {
  std::vector<int64_t> index(shape.size());
  for (size_t axis = shape.size(); axis-- > 0; element /= shape[axis])
    index[axis] = element % shape[axis];
  return "[" + join(index, ", ", [](int64_t i) { return std::to_string(i); }) + "]";
}

std::string element_text(const HostTensor& x, int64_t i) {
  return is_floating(x.dtype()) ? number_text(x.get_double(i)) : x.element_text(i);
}

/// Fails the comparison if the types differ, and says so.
bool same_type(const HostTensor& got, DType dtype, const std::vector<int64_t>& shape,
               Comparison& result) {
  if (got.dtype() == dtype && got.shape() == shape) return true;
  const auto type_text = [](DType type, const std::vector<int64_t>& dims) {
    return fmt::format("{}[{}]", name(type),
                       join(dims, ", ", [](int64_t d) { return std::to_string(d); }));
  };
  result.ok = false;
  result.mismatches = got.numel();
  result.text = fmt::format("got {}, expected {}", type_text(got.dtype(), got.shape()),
                            type_text(dtype, shape));
  return false;
}

bool same_bits(DType dtype, uint64_t a, uint64_t b) {
  if (a == b) return true;
  return is_floating(dtype) && std::isnan(bits_to_double(dtype, a)) &&
         std::isnan(bits_to_double(dtype, b));
}

/// The ratio |got - value| / bound; 0 if the bound is infinite. `value` is NaN or infinite only if
/// the bound is 0.
double bound_ratio(double got, double value, double bound) {
  if (bound == kInfinity) return 0;
  const bool equal = got == value ? std::signbit(got) == std::signbit(value)
                                  : std::isnan(got) && std::isnan(value);
  if (equal) return 0;
  const double error = std::abs(got - value);
  return bound > 0 && std::isfinite(error) ? error / bound : kInfinity;
}

double median(std::vector<double>& values) {
  if (values.empty()) return -1;
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The greatest bound that judges an element. A bound up to the least number above zero always
/// judges.
double widest_bound(DType dtype, const HostTensor& value) {
  double greatest = 0;
  for (int64_t i = 0; i < value.numel(); ++i)
    if (const double x = std::abs(value.get_double(i)); std::isfinite(x))
      greatest = std::max(greatest, x);
  return std::max(kTellingShare * greatest, bits_to_double(dtype, 1));
}

std::string bounded_summary(const Comparison& result, const HostTensor& got,
                            const Bounded& expected) {
  if (result.coverage.vacuous() && result.ok)
    return fmt::format("no element was judged: {} of {} elements have a bound that is too wide",
                       result.coverage.unjudged, result.elements);
  std::string text = "equal";
  if (const int64_t i = result.worst; i >= 0)
    text = fmt::format("max error {:.3g} of its bound at {}: got {}, expected {} +- {:.3g}",
                       result.max_ratio, index_text(got.shape(), i), element_text(got, i),
                       element_text(expected.value, i), expected.bound[static_cast<size_t>(i)]);
  if (result.mismatches > 0)
    text +=
        fmt::format(" ({} of {} elements are out of bound)", result.mismatches, result.elements);
  if (result.coverage.unjudged > 0)
    text +=
        fmt::format("; {} of {} elements not judged", result.coverage.unjudged, result.elements);
  return text;
}

}  // namespace

int64_t ulp_distance(DType dtype, uint64_t a, uint64_t b) {
  const bool a_nan = std::isnan(bits_to_double(dtype, a));
  const bool b_nan = std::isnan(bits_to_double(dtype, b));
  if (a_nan || b_nan) return a_nan == b_nan ? 0 : std::numeric_limits<int64_t>::max();
  // Without the sign, the bits of a float are its number in the order of the floats from zero on.
  const uint64_t sign = uint64_t{1} << (8 * size_of(dtype) - 1);
  const auto rank = [&](uint64_t bits) {
    const auto magnitude = static_cast<int64_t>(bits & ~sign);
    return bits & sign ? -magnitude : magnitude;
  };
  int64_t distance = 0;
  if (__builtin_sub_overflow(rank(a), rank(b), &distance))
    return std::numeric_limits<int64_t>::max();
  return std::abs(distance);
}

double Coverage::share() const {
  const int64_t all = judged + unjudged;
  return all > 0 ? static_cast<double>(judged) / static_cast<double>(all) : 1;
}

Coverage& Coverage::operator+=(const Coverage& other) {
  judged += other.judged;
  unjudged += other.unjudged;
  nonfinite += other.nonfinite;
  return *this;
}

Comparison compare(const HostTensor& got, const HostTensor& expected) {
  Comparison result;
  if (!same_type(got, expected.dtype(), expected.shape(), result)) return result;
  result.elements = got.numel();
  for (int64_t i = 0; i < got.numel(); ++i) {
    const uint64_t a = got.get_bits(i), b = expected.get_bits(i);
    const bool finite = !is_floating(got.dtype()) || std::isfinite(expected.get_double(i));
    ++(finite ? result.coverage.judged : result.coverage.nonfinite);
    if (same_bits(got.dtype(), a, b)) continue;
    ++result.mismatches;
    const int64_t ulps = is_floating(got.dtype()) ? ulp_distance(got.dtype(), a, b) : 0;
    if (result.worst < 0 || ulps > result.max_ulps) result.worst = i;
    result.max_ulps = std::max(result.max_ulps, ulps);
  }
  result.ok = result.mismatches == 0;
  result.text = "equal";
  if (!result.ok)
    result.text = fmt::format(
        "{} of {} elements differ{}; worst at {}: got {}, expected {}", result.mismatches,
        result.elements,
        is_floating(got.dtype()) ? fmt::format(", by up to {} ulp", result.max_ulps) : "",
        index_text(got.shape(), result.worst), element_text(got, result.worst),
        element_text(expected, result.worst));
  return result;
}

Comparison compare(const HostTensor& got, const Bounded& expected) {
  Comparison result;
  const bool floating = expected.value.dtype() == DType::F64 && is_floating(got.dtype());
  if (!same_type(got, floating ? got.dtype() : expected.value.dtype(), expected.value.shape(),
                 result))
    return result;
  result.elements = got.numel();
  const double widest = floating ? widest_bound(got.dtype(), expected.value) : 0;
  std::vector<double> ratios;
  for (int64_t i = 0; i < got.numel(); ++i) {
    const double bound = expected.bound[static_cast<size_t>(i)];
    double ratio = 0;
    if (floating)
      ratio = bound_ratio(got.get_double(i), expected.value.get_double(i), bound);
    else if (bound == 0 && got.get_bits(i) != expected.value.get_bits(i))
      ratio = kInfinity;
    const bool finite = !floating || std::isfinite(expected.value.get_double(i));
    const bool judged = bound <= widest;
    ++(!judged  ? result.coverage.unjudged
       : finite ? result.coverage.judged
                : result.coverage.nonfinite);
    result.mismatches += ratio > 1;
    if (judged && bound > 0) ratios.push_back(ratio);
    if ((judged || ratio > 1) && ratio > result.max_ratio) {
      result.max_ratio = ratio;
      result.worst = i;
    }
  }
  result.ok = result.mismatches == 0;
  result.median_ratio = median(ratios);
  result.text = bounded_summary(result, got, expected);
  return result;
}

}  // namespace braze
