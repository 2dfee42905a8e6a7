#include "frontend/models/formulas.h"

#include <cmath>
#include <numbers>

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

}  // namespace braze
