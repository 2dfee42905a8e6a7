// formulas.h — the longer bodies of formula rows: inverse and hyperbolic functions, the gamma
// function and its derivative, the inverse error function, and counts of bits.
//
// Like the bodies in math_bodies.h they are straight lines of other rows, so a row has the same
// value wherever its math rows have. They are fewer, simpler and longer than those, because models
// call them rarely. x and y are f32 or f64 (f16 and bf16 are computed in f32 and rounded once).
//
// Largest errors in ulp against mpmath, at 2,000 random arguments of all magnitudes for each dtype:
//
//               f32   f64   method
//   tan         1.6   1.9   sin(x) / cos(x)
//   atan        1.4   1.5   values at eighths, and the series between them
//   atan2       1.4   1.6   the same, of the lesser divided by the greater
//   asin        1.9   2.0   by half the angle: 2 atan(x / (1 + sqrt(1 - x^2)))
//   acos        1.7   1.7   by half the angle: 2 atan(sqrt((1 - x) / (1 + x)))
//   sinh        1.6   1.9   by expm1; from 1 on by e^(x-1) e/2, which overflows no earlier than
//   sinh cosh        1.4   1.6   by e^(x-1) e/2 asinh       1.5   1.5   log1p(x + x^2 / (sqrt(x^2 +
//   1) + 1)) acosh       1.5   1.5   log1p(t + sqrt(t (t + 2))), t = x - 1 atanh       1.6   1.6
//   log1p(2x / (1 - x)) / 2 cbrt        0.7   0.7   2^(log2(x) / 3) and a step of Newton's method
//   erfinv      1.1   1.3   Winitzki's formula (2008) and steps of Halley's method
//   lgamma      5     5     a series around 2, Stirling's series from 8.5 on, reflection below 0
//   digamma     7     7     the derivative of Stirling's series beyond 10, reflection below 1/2
//
// Errors of lgamma and digamma are in ulp of the greater of 1 and the result: beside the zeros of
// digamma and those of lgamma below 0, terms cancel, and results have few digits.
#pragma once

#include "ir/ops/scalar.h"

namespace braze::formulas {

Scalar tangent(const Scalar& x);
Scalar arc_tangent(const Scalar& x);
Scalar arc_sine(const Scalar& x);
Scalar arc_cosine(const Scalar& x);
/// The angle of the point (x, y). Zeros and infinities are as in annex F of ISO C.
Scalar angle(const Scalar& y, const Scalar& x);
Scalar hyperbolic_sine(const Scalar& x);
Scalar hyperbolic_cosine(const Scalar& x);
Scalar area_sine(const Scalar& x);
Scalar area_cosine(const Scalar& x);
Scalar area_tangent(const Scalar& x);
Scalar cube_root(const Scalar& x);
Scalar inverse_error_function(const Scalar& x);
Scalar log_gamma(const Scalar& x);
Scalar digamma(const Scalar& x);
Scalar rounded_away(const Scalar& x);
/// x is of an integer dtype.
Scalar ones_in(const Scalar& x);
Scalar leading_zeros(const Scalar& x);

/// `along` / (x^2 + y^2), without overflow or underflow on the way.
Scalar over_square_norm(const Scalar& along, const Scalar& x, const Scalar& y);

}  // namespace braze::formulas
