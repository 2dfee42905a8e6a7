#include "ir/index/interval.h"

#include <algorithm>

namespace braze {

namespace {

using Wide = __int128;

// The number that stands for an unbounded end. No finite end reaches it.
constexpr Wide kInfinity = Wide{1} << 63;

Wide low(Interval a) { return a.min == INT64_MIN ? -kInfinity : Wide{a.min}; }
Wide high(Interval a) { return a.max == INT64_MAX ? kInfinity : Wide{a.max}; }

int64_t saturate(Wide v) {
  return static_cast<int64_t>(std::clamp(v, Wide{INT64_MIN}, Wide{INT64_MAX}));
}

}  // namespace

Interval add(Interval a, Interval b) {
  return {a.min == INT64_MIN || b.min == INT64_MIN ? INT64_MIN : saturate(Wide{a.min} + b.min),
          a.max == INT64_MAX || b.max == INT64_MAX ? INT64_MAX : saturate(Wide{a.max} + b.max)};
}

Interval scale(Interval a, int64_t factor) {
  if (factor < 0) return {saturate(high(a) * factor), saturate(low(a) * factor)};
  return {saturate(low(a) * factor), saturate(high(a) * factor)};
}

Interval multiply(Interval a, Interval b) {
  const Wide corners[] = {low(a) * low(b), low(a) * high(b), high(a) * low(b), high(a) * high(b)};
  const auto [min, max] = std::minmax_element(std::begin(corners), std::end(corners));
  return {saturate(*min), saturate(*max)};
}

Interval floordiv(Interval a, Interval b) {
  const int64_t least = std::max<int64_t>(b.min, 1);
  const int64_t most = std::max(b.max, least);
  // For an unbounded divisor, the quotient is 0 for a dividend that is not negative, and -1 for a
  // negative one.
  const auto quotient = [&](int64_t value, bool towards_zero) -> int64_t {
    const int64_t divisor = towards_zero ? most : least;
    if (divisor == INT64_MAX) return value < 0 ? -1 : 0;
    return floordiv(value, divisor);
  };
  return {a.min == INT64_MIN ? INT64_MIN : quotient(a.min, a.min >= 0),
          a.max == INT64_MAX ? INT64_MAX : quotient(a.max, a.max < 0)};
}

Interval mod(Interval a, Interval b) {
  Interval result{0, std::max<int64_t>(b.max, 1)};
  if (result.max != INT64_MAX) --result.max;
  if (a.min >= 0) result.max = std::min(result.max, a.max);
  return result;
}

Interval round_to_multiples(Interval a, int64_t divisor) {
  if (divisor <= 1) return a;
  Interval result = a;
  if (a.max != INT64_MAX && a.max >= INT64_MIN + divisor) {
    result.max = floordiv(a.max, divisor) * divisor;
  }
  if (a.min != INT64_MIN && a.min <= INT64_MAX - divisor) {
    result.min = -floordiv(-a.min, divisor) * divisor;
  }
  return result;
}

}  // namespace braze
