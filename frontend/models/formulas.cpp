#include "frontend/models/formulas.h"

#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "braze/elementwise.h"

namespace braze {

namespace {

// The arc tangent on [0, 1], from its values at eighths c:
// atan(x) = atan(c) + atan((x - c) / (1 + x c)). The last argument is at most 1/16, so five terms
// of the series give the first 40 bits of an f64, and nine terms give all bits.
Tensor atan_within_one(const Tensor& x) {
  const Tensor c = round_even(x * 8) / 8;
  Tensor known = full_like(x, 0.0);
  for (int i = 1; i <= 8; ++i) known = where(c == i / 8.0, std::atan(i / 8.0), known);
  const Tensor t = (x - c) / (x * c + 1), s = t * t;
  Tensor sum = full_like(x, 0.0);
  for (int i = 8; i >= 1; --i) sum = (sum + (i % 2 ? -1.0 : 1.0) / (2 * i + 1)) * s;
  return known + (t + t * sum);
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A sum of coefficients[i] * t^i, by Horner's rule.
Tensor polynomial(const Tensor& t, const std::vector<double>& coefficients) {
  Tensor sum = full_like(t, 0.0);
  for (auto c = coefficients.rbegin(); c != coefficients.rend(); ++c) sum = sum * t + *c;
  return sum;
}

// What Stirling's series adds to log(gamma(x)) for x > 8.
Tensor beyond_stirling(const Tensor& x) {
  return polynomial(1 / (x * x), {1.0 / 12, -1.0 / 360, 1.0 / 1260, -1.0 / 1680, 1.0 / 1188,
                                  -691.0 / 360360, 1.0 / 156, -3617.0 / 122400}) /
         x;
}

// log(gamma(2 + t)) for |t| <= 1/2: the series of zeta(k) - 1, whose terms fall by 4 at least.
Tensor lgamma_around_two(const Tensor& t) {
  std::vector<double> coefficients = {1 - std::numbers::egamma};
  const int count = t.dtype() == f64 ? 26 : 12;
  for (int k = 2; k <= count; ++k)
    coefficients.push_back((k % 2 ? -1 : 1) * (std::riemann_zeta(k) - 1) / k);
  return t * polynomial(t, coefficients);
}

// pi times what is left of x beside the nearest whole number, which is exact.
Tensor from_nearest(const Tensor& x) { return (x - round_even(x)) * std::numbers::pi; }

}  // namespace

// If e^x and e^-x are close, their difference would lose digits. expm1 keeps them.
Tensor sinh_of(const Tensor& x) {
  const Tensor e = expm1(abs(x));
  const Tensor half = exp(abs(x) - std::numbers::ln2);
  const Tensor y = where(abs(x) < 1, (e + e / (e + 1)) * 0.5, half - 0.25 / half);
  return where(x < 0, -y, y);
}
Tensor asinh_of(const Tensor& x) {
  const Tensor a = abs(x), square_root = sqrt(a * a + 1);
  const Tensor y = log1p(a + a * a / (square_root + 1));
  return where(x < 0, -y, y);
}
Tensor acosh_of(const Tensor& x) { return log(x + sqrt((x - 1) * (x + 1))); }
Tensor atanh_of(const Tensor& x) { return log1p(x * 2 / (1 - x)) * 0.5; }
Tensor tan_of(const Tensor& x) { return sin(x) / cos(x); }
Tensor cosh_of(const Tensor& x) {
  const Tensor half = exp(abs(x) - std::numbers::ln2);
  return half + 0.25 / half;
}

Tensor atan_of(const Tensor& x) {
  const Tensor a = abs(x);
  const Tensor y = where(a > 1, std::numbers::pi / 2 - atan_within_one(1 / maximum(a, 1.0)),
                         atan_within_one(minimum(a, 1.0)));
  return where(x < 0, -y, y);
}
// Computed through half the angle, since that is accurate for all x.
Tensor asin_of(const Tensor& x) { return atan_of(x / (sqrt((1 - x) * (1 + x)) + 1)) * 2.0; }
Tensor acos_of(const Tensor& x) {
  const Tensor y = atan_of(sqrt((1 - x) / (1 + x))) * 2.0;
  return where(x == -1.0, std::numbers::pi, y);
}

// Winitzki's formula gives y to 1 %, and each step of Halley's method makes the error its third
// power.
Tensor erf_inv_of(const Tensor& x) {
  constexpr double kA = 0.147;
  const Tensor a = abs(x), rest = 1 - a;
  const Tensor is_near_one = a > 0.5;
  const Tensor l = where(is_near_one, log(rest * (1 + a)), log1p(-(a * a)));
  const Tensor b = l * 0.5 + 2 / (std::numbers::pi * kA);
  Tensor y = sqrt(l * (-1 / kA) / (sqrt(b * b - l / kA) + b));
  for (int i = 0; i < (x.dtype() == f64 ? 3 : 2); ++i) {
    // Near 1, a difference of erf would lose digits.
    const Tensor error = where(is_near_one, rest - erfc(y), erf(y) - a);
    const Tensor step = error * exp(y * y) * (0.5 / std::numbers::inv_sqrtpi);
    y = y - step / (1 + y * step);
  }
  y = where(a == 1.0, kInfinity, y);
  return where(x < 0, -y, where(a == 0.0, x, y));
}

// From 1.5 to 2.5 by a series around 2, so that the zeros at 1 and 2 keep their digits. Arguments
// from 2.5 to 8.5 are moved there, smaller ones too, and greater ones go by Stirling's formula.
// Negative ones are reflected.
Tensor lgamma_of(const Tensor& x) {
  const Tensor is_reflected = x < 0;
  const Tensor a = where(is_reflected, 1 - x, x);
  // gamma(a) = gamma(near) * product for a >= 2.5
  Tensor near = a, product = ones_like(a);
  for (int i = 0; i < 6; ++i) {
    const Tensor is_far = near >= 2.5;
    near = where(is_far, near - 1, near);
    product = where(is_far, product * near, product);
  }
  // log(gamma(a)) = log(gamma(a + 1)) - log(a) for a < 1.5, and once more for a < 1/2
  const Tensor is_small = a < 0.5, is_below = a < 1.5;
  const Tensor t = where(is_small, a, where(is_below, a - 1, near - 2));
  const Tensor around = lgamma_around_two(where(abs(t) <= 0.5, t, zeros_like(t))) -
                        where(is_small, log1p(a) + log(a),
                              where(is_below, log1p(where(is_below, a - 1, 0.0)), -log(product)));
  const Tensor large = where(a >= 8.5, a, full_like(a, 8.5));
  const Tensor stirling = (large - 0.5) * (log(large) - 1) +
                          (0.5 * std::log(2 * std::numbers::pi) - 0.5) + beyond_stirling(large);
  Tensor out = where(a >= 8.5, where(a < kInfinity, stirling, kInfinity), around);
  const Tensor sine = abs(sin(from_nearest(x)));
  out = where(is_reflected, std::log(std::numbers::pi) - log(sine) - out, out);
  // At a pole, the sine is 0 and its logarithm minus infinity.
  return where(abs(x) == kInfinity, kInfinity, where(is_nan(x), x, out));
}

// The series of the derivative of Stirling's formula, for arguments that were moved beyond 10;
// arguments below 1/2 are reflected.
Tensor digamma_of(const Tensor& x) {
  const Tensor is_reflected = x < 0.5;
  Tensor a = where(is_reflected, 1 - x, x), sum = zeros_like(x);
  for (int i = 0; i < 10; ++i) {
    const Tensor is_near = a < 10;
    sum = where(is_near, sum + 1 / a, sum);
    a = where(is_near, a + 1, a);
  }
  const Tensor inverse = 1 / a, square = inverse * inverse;
  const Tensor series = polynomial(
      square, {1.0 / 12, -1.0 / 120, 1.0 / 252, -1.0 / 240, 1.0 / 132, -691.0 / 32760, 1.0 / 12});
  const Tensor out = log(a) - inverse * 0.5 - square * series - sum;
  const Tensor angle = from_nearest(x);
  const Tensor reflected = out - std::numbers::pi * cos(angle) / sin(angle);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  return where(is_reflected, where(x == floor(x), nan, reflected), out);
}

}  // namespace braze
