// interval.h — saturating arithmetic on intervals, as Interval in expr.h defines them.
//
// INT64_MIN as a lower and INT64_MAX as an upper end mean "unbounded". An interval may be empty
// (min > max), for example for the index of an empty loop. Results are then arbitrary, which is
// sound, because no value exists for which they could be wrong.
#pragma once

#include <cstdint>

#include "ir/index/expr.h"

namespace braze {

Interval add(Interval a, Interval b);
Interval scale(Interval a, int64_t factor);
Interval multiply(Interval a, Interval b);
/// The intervals of floordiv and mod for values of `a` and the positive values of `b`.
Interval floordiv(Interval a, Interval b);
Interval mod(Interval a, Interval b);

/// Rounds the ends inwards to multiples of `divisor`.
Interval round_to_multiples(Interval a, int64_t divisor);

/// Division that rounds towards minus infinity, and its remainder; `b` > 0.
constexpr int64_t floordiv(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }
constexpr int64_t mod(int64_t a, int64_t b) { return a % b + (a % b < 0 ? b : 0); }

}  // namespace braze
