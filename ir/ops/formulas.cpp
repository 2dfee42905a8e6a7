#include "ir/ops/formulas.h"

#include <limits>
#include <numbers>
#include <span>

#include "ir/ops/elementwise.h"

namespace braze::formulas {

namespace {

using S = const Scalar&;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Scalar zero(S x) { return x.constant(0); }
Scalar is_below(S x, double bound) { return lt(x, x.constant(bound)); }
Scalar is_above(S x, double bound) { return gt(x, x.constant(bound)); }
bool is_f64(S x) { return x.dtype() == DType::F64; }

/// A number of twice the precision of x's dtype, as the sum of two of that dtype.
struct Double {
  Scalar high, low;
};
/// `high` + `low`, where `high` is the number rounded to f64.
Double constant(S x, double high, double low) {
  if (is_f64(x)) return {x.constant(high), x.constant(low)};
  const auto upper = static_cast<double>(static_cast<float>(high));
  return {x.constant(upper), x.constant(high - upper)};
}
Double pi(S x) { return constant(x, 0x1.921fb54442d18p+1, 0x1.1a62633145c07p-53); }
Double half_pi(S x) { return constant(x, 0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54); }
Double half_e(S x) { return constant(x, 0x1.5bf0a8b145769p+0, 0x1.4d57ee2b1013ap-54); }
Scalar minus(const Double& a, S b) { return (a.high - b) + a.low; }
Scalar times(const Double& a, S b) { return fma(a.high, b, a.low * b); }

/// The sum of coefficients[i] * t^i, by Horner's rule.
Scalar polynomial(S t, std::span<const double> coefficients) {
  Scalar sum = t.constant(coefficients.back());
  for (size_t i = coefficients.size() - 1; i-- > 0;) sum = fma(sum, t, t.constant(coefficients[i]));
  return sum;
}

// ---- Inverse trigonometric functions ------------------------------------------------------------

/// The arc tangent on [0, 1], from its values at eighths c:
/// atan(x) = atan(c) + atan((x - c) / (1 + x c)). The last argument is at most 1/16, so the series
/// needs few terms.
Scalar arc_tangent_within_one(S x) {
  static constexpr double kAtEighths[] = {
      0x1.fd5ba9aac2f6ep-4, 0x1.f5b75f92c80ddp-3, 0x1.6f61941e4def1p-2, 0x1.dac670561bb4fp-2,
      0x1.1e00babdefeb4p-1, 0x1.4978fa3269ee1p-1, 0x1.700a7c5784634p-1, 0x1.921fb54442d18p-1};
  static constexpr double kSeries[] = {-1.0 / 3,  1.0 / 5,  -1.0 / 7,  1.0 / 9,
                                       -1.0 / 11, 1.0 / 13, -1.0 / 15, 1.0 / 17};
  const Scalar c = round_even(x * 8.0) * 0.125;
  Scalar known = zero(x);
  for (int i = 1; i <= 8; ++i)
    known = select(eq(c, x.constant(i / 8.0)), x.constant(kAtEighths[i - 1]), known);
  const Scalar t = (x - c) / fma(x, c, x.constant(1)), s = t * t;
  const std::span<const double> series(kSeries, is_f64(x) ? 8 : 4);
  return known + fma(t * s, polynomial(s, series), t);
}

/// Whether the sign of x is minus, also that of -0.
Scalar has_minus(S x) { return logical_or(is_below(x, 0), is_below(1.0 / x, 0)); }

}  // namespace

Scalar tangent(S x) { return sin(x) / cos(x); }

Scalar arc_tangent(S x) {
  const Scalar a = abs(x), is_steep = is_above(a, 1);
  const Scalar first = arc_tangent_within_one(select(is_steep, 1.0 / max(a, x.constant(1)), a));
  return select(is_steep, minus(half_pi(x), first), first) * sign(x);
}

Scalar angle(S y, S x) {
  const Scalar ay = abs(y), ax = abs(x);
  const Scalar most = max(ax, ay), least = min(ax, ay);
  // Equal numbers may both be infinite, or both zero.
  const Scalar same = select(eq(most, zero(x)), zero(x), x.constant(1));
  const Scalar first = arc_tangent_within_one(select(eq(most, least), same, least / most));
  const Scalar steep = select(gt(ay, ax), minus(half_pi(x), first), first);
  const Scalar out = select(has_minus(x), minus(pi(x), steep), steep);
  return select(has_minus(y), -out, out);
}

Scalar arc_sine(S x) {
  const Scalar a = abs(x);
  const Scalar half = a / (sqrt((1.0 - a) * (1.0 + a)) + 1.0);
  // The half of the least numbers would lose a bit.
  return select(is_below(a, is_f64(x) ? 0x1p-27 : 0x1p-13), x,
                arc_tangent_within_one(half) * 2.0 * sign(x));
}

Scalar arc_cosine(S x) { return arc_tangent(sqrt((1.0 - x) / (1.0 + x))) * 2.0; }

// ---- Hyperbolic functions -----------------------------------------------------------------------

namespace {

/// e^a / 2. It is finite wherever the hyperbolic functions of a are. From 1 on, a - 1 is exact.
Scalar half_power(S a) { return times(half_e(a), exp(a - 1.0)); }

/// Beyond it, sqrt(x^2 + 1) and sqrt(x^2 - 1) are x, and 1 + x is x.
double large(S x) { return is_f64(x) ? 0x1p60 : 0x1p28; }

}  // namespace

Scalar hyperbolic_sine(S x) {
  const Scalar a = abs(x), half = half_power(a), e = expm1(a);
  // If e^a and e^-a are close, their difference would lose digits.
  const Scalar y = select(is_below(a, 1), (e + e / (e + 1.0)) * 0.5, half - 0.25 / half);
  return y * sign(x);
}

Scalar hyperbolic_cosine(S x) {
  const Scalar half = half_power(abs(x));
  return half + 0.25 / half;
}

Scalar area_sine(S x) {
  const Scalar a = abs(x), is_large = is_above(a, large(x));
  const Scalar b = min(a, x.constant(large(x)));
  const Scalar near = b + b * b / (sqrt(fma(b, b, x.constant(1))) + 1.0);
  const Scalar y =
      log1p(select(is_large, a, near)) + select(is_large, x.constant(std::numbers::ln2), zero(x));
  return y * sign(x);
}

Scalar area_cosine(S x) {
  const Scalar is_large = is_above(x, large(x));
  const Scalar t = x - 1.0, u = min(t, x.constant(large(x)));
  const Scalar near = u + sqrt(u * (u + 2.0));
  const Scalar y =
      log1p(select(is_large, x, near)) + select(is_large, x.constant(std::numbers::ln2), zero(x));
  return select(is_below(x, 1), x.constant(kNaN), y);
}

Scalar area_tangent(S x) {
  const Scalar a = abs(x);
  const Scalar y = log1p(a * 2.0 / (1.0 - a)) * 0.5;
  // Twice the half of the least numbers would lose a bit.
  return select(is_below(a, is_f64(x) ? 0x1p-27 : 0x1p-13), x, y * sign(x));
}

// ---- Roots --------------------------------------------------------------------------------------

/// Newton's method squares the relative error of the first root, which is below 2^-16 (f64: 2^-43).
Scalar cube_root(S x) {
  const Scalar a = abs(x);
  const Scalar near = exp2(log2(a) * (1.0 / 3));
  const Scalar root = (near - (near - a / (near * near)) * (1.0 / 3)) * sign(x);
  const Scalar is_itself = logical_or(eq(a, zero(x)), eq(a, x.constant(kInfinity)));
  return select(is_itself, x, root);
}

// ---- Probability --------------------------------------------------------------------------------

/// Winitzki's formula gives y to 1 %, and each step of Halley's method makes the error its third
/// power.
Scalar inverse_error_function(S x) {
  constexpr double kA = 0.147, kHalfRootPi = 0x1.c5bf891b4ef6bp-1;
  const Scalar a = abs(x), rest = 1.0 - a;
  const Scalar is_near_one = is_above(a, 0.5);
  const Scalar l = select(is_near_one, log(rest * (1.0 + a)), log1p(-(a * a)));
  const Scalar b = l * 0.5 + 2 / (std::numbers::pi * kA);
  Scalar y = sqrt(l * (-1 / kA) / (sqrt(b * b - l * (1 / kA)) + b));
  for (int i = 0; i < (is_f64(x) ? 3 : 2); ++i) {
    // Near 1, a difference of erf would lose digits.
    const Scalar error = select(is_near_one, rest - erfc(y), erf(y) - a);
    const Scalar step = error * exp(y * y) * kHalfRootPi;
    y = y - step / (1.0 + y * step);
  }
  return select(eq(a, x.constant(1)), x.constant(kInfinity), y) * sign(x);
}

namespace {

/// What Stirling's series adds to log(gamma(x)) for x > 8.
Scalar beyond_stirling(S x) {
  static constexpr double kSeries[] = {1.0 / 12,   -1.0 / 360,        1.0 / 1260, -1.0 / 1680,
                                       1.0 / 1188, -691.0 / 360360.0, 1.0 / 156,  -3617.0 / 122400};
  return polynomial(1.0 / (x * x), kSeries) / x;
}

/// log(gamma(2 + t)) for |t| <= 1/2: its series has the coefficients 1 - (Euler's constant) and
/// (-1)^k (zeta(k) - 1) / k, and its terms fall by 4 at least.
Scalar log_gamma_around_two(S t) {
  static constexpr double kSeries[] = {
      0x1.b0ee6072093cep-2,   0x1.4a34cc4a60fa6p-2,  -0x1.13e001a557607p-4,  0x1.51322ac7d8483p-6,
      -0x1.e404fc218f5f2p-8,  0x1.7add6eadb6c30p-9,  -0x1.38ac5c2bf8e08p-10, 0x1.0b36af86396e9p-11,
      -0x1.d3fd4c76d2fc8p-13, 0x1.a127b0f17d65ap-14, -0x1.78de5bd7c81efp-15, 0x1.580dcee66eb02p-16,
      -0x1.3cbc963ce2243p-17, 0x1.2597a39f34aacp-18, -0x1.11b2eb7679541p-19, 0x1.0064cdeb22f0fp-20,
      -0x1.e2600d93cfd2fp-22, 0x1.c76bbb3f07a4dp-23, -0x1.af5a6cbbf8a97p-24, 0x1.99b93c2070b0fp-25,
      -0x1.862c734df3eacp-26, 0x1.7469daccfadcdp-27, -0x1.6434a8447aeadp-28, 0x1.555a877ffd2c3p-29,
      -0x1.47b1679258d0ep-30, 0x1.3b15d2b2fc10cp-31};
  const std::span<const double> series(kSeries, is_f64(t) ? 26 : 12);
  return t * polynomial(t, series);
}

/// pi times the distance of x from the nearest whole number, which is exact.
Scalar from_nearest(S x) { return (x - round_even(x)) * std::numbers::pi; }

}  // namespace

/// From 1.5 to 2.5 by a series around 2, so that the zeros at 1 and 2 keep their digits. Arguments
/// from 2.5 to 8.5 are moved there, smaller ones too, and greater ones go by Stirling's formula.
/// Negative ones are reflected.
Scalar log_gamma(S x) {
  const Scalar one = x.constant(1);
  const Scalar is_reflected = is_below(x, 0);
  const Scalar a = select(is_reflected, 1.0 - x, x);
  // gamma(a) = gamma(near) * product for a >= 2.5
  Scalar near = a, product = one;
  for (int i = 0; i < 6; ++i) {
    const Scalar is_far = ge(near, x.constant(2.5));
    near = select(is_far, near - 1.0, near);
    product = select(is_far, product * near, product);
  }
  // log(gamma(a)) = log(gamma(a + 1)) - log(a) for a < 1.5, and once more for a < 1/2
  const Scalar is_small = is_below(a, 0.5), is_less = is_below(a, 1.5);
  const Scalar t = select(is_small, a, select(is_less, a - 1.0, near - 2.0));
  const Scalar within = min(max(t, x.constant(-0.5)), x.constant(0.5));
  const Scalar moved =
      select(is_small, log1p(a) + log(a),
             select(is_less, log1p(select(is_less, a - 1.0, zero(x))), -log(product)));
  const Scalar around = log_gamma_around_two(within) - moved;
  const Scalar is_great = ge(a, x.constant(8.5));
  const Scalar great = select(is_great, a, x.constant(8.5));
  const Scalar stirling =
      (great - 0.5) * (log(great) - 1.0) + 0x1.acfe390c97d69p-2 + beyond_stirling(great);
  const Scalar infinity = x.constant(kInfinity);
  Scalar out = select(is_great, select(lt(a, infinity), stirling, infinity), around);
  // log(pi) - log |sin(pi x)| - log(gamma(1 - x)). At a pole, the sine is 0.
  const Scalar sine = abs(sin(from_nearest(x)));
  const Scalar reflected = 0x1.250d048e7a1bdp+0 - log(sine) - out;
  out = select(is_reflected, select(eq(sine, zero(x)), infinity, reflected), out);
  return select(eq(abs(x), infinity), infinity, select(is_nan(x), x, out));
}

/// The derivative of Stirling's series, for arguments that were moved beyond 10. Arguments below
/// 1/2 are reflected. Branches that are not taken are finite, so that the gradient is, too.
Scalar digamma(S x) {
  static constexpr double kSeries[] = {1.0 / 12,  -1.0 / 120,       1.0 / 252, -1.0 / 240,
                                       1.0 / 132, -691.0 / 32760.0, 1.0 / 12};
  const Scalar is_reflected = is_below(x, 0.5);
  Scalar a = select(is_reflected, 1.0 - x, x), sum = zero(x);
  for (int i = 0; i < 10; ++i) {
    const Scalar is_near = is_below(a, 10);
    sum = select(is_near, sum + 1.0 / a, sum);
    a = select(is_near, a + 1.0, a);
  }
  const Scalar inverse = 1.0 / a, square = inverse * inverse;
  const Scalar out = log(a) - inverse * 0.5 - square * polynomial(square, kSeries) - sum;
  const Scalar turn = select(is_reflected, from_nearest(x), x.constant(1));
  const Scalar reflected = out - std::numbers::pi * cos(turn) / sin(turn);
  const Scalar is_pole = logical_and(is_reflected, eq(x, floor(x)));
  return select(is_pole, x.constant(kNaN), select(is_reflected, reflected, out));
}

// ---- Others -------------------------------------------------------------------------------------

Scalar rounded_away(S x) {
  const Scalar whole = trunc(x);
  return select(ge(abs(x - whole), x.constant(0.5)), whole + sign(x), whole);
}

namespace {

/// The bits of x as an unsigned integer, so that shifts move zeros in.
Scalar bits_of(S x) {
  constexpr DType kTypes[] = {DType::U8, DType::U16, DType::U32, DType::U64};
  size_t i = 0;
  for (size_t bytes = size_of(x.dtype()); bytes > 1; bytes /= 2) ++i;
  return bitcast(x, kTypes[i]);
}

/// A constant that repeats this byte.
Scalar repeated(S x, uint64_t byte) {
  const uint64_t all = byte * 0x0101010101010101u;
  return x.constant_bits(x.dtype(), all >> (64 - 8 * size_of(x.dtype())));
}

Scalar shifted(S x, int count) { return shr(x, x.constant(count)); }

/// Sums of 1, 2, 4 .. neighbouring bits, all at once.
Scalar count_of(S x) {
  const auto width = static_cast<int>(8 * size_of(x.dtype()));
  Scalar sums = x - bit_and(shifted(x, 1), repeated(x, 0x55));
  sums = bit_and(sums, repeated(x, 0x33)) + bit_and(shifted(sums, 2), repeated(x, 0x33));
  sums = bit_and(sums + shifted(sums, 4), repeated(x, 0x0f));
  for (int i = 8; i < width; i *= 2) sums = sums + shifted(sums, i);
  return bit_and(sums, x.constant(2 * width - 1));
}

}  // namespace

Scalar ones_in(S x) { return bitcast(count_of(bits_of(x)), x.dtype()); }

/// The ones of what is left of x after all bits below its first one are set, and inverted.
Scalar leading_zeros(S x) {
  Scalar filled = bits_of(x);
  const auto width = static_cast<int>(8 * size_of(x.dtype()));
  for (int i = 1; i < width; i *= 2) filled = bit_or(filled, shifted(filled, i));
  return bitcast(count_of(logical_not(filled)), x.dtype());
}

Scalar over_square_norm(S along, S x, S y) {
  const Scalar most = max(abs(x), abs(y));
  const Scalar u = x / most, v = y / most;
  return along / most / (u * u + v * v) / most;
}

}  // namespace braze::formulas
