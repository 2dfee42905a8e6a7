// math_bodies.h: the bodies of the math rows (exp, log, tanh ...) over machine rows.
//
// Every body is a straight line of machine operations, each rounded once by IEEE 754, so that CPU
// vectors, the simulator and GPUs give the same bits. There are no branches, loops, tables or calls
// at run time. f32 results are within 1 ulp, f64 results within 4, those of gelu in f32 within
// 2^-21; tests/math/RESULTS.md says how that was measured. Subnormal numbers, signed zeros,
// infinities and NaNs follow IEEE 754 and annex F of ISO C.
//
// `S` is any scalar that knows its dtype and offers the machine rows by argument-dependent lookup:
// `Scalar` builds graph nodes and kernel instructions, tests/math runs the bodies on vectors.
//
// Notation
//   x, a      the argument and its magnitude
//   k, n      an integer as a float, the power of two it stands for
//   r, f, h   a reduced argument: of exp, of log, of tanh
//   z         the square of a reduced argument
//   q         a minimax polynomial (tools/math/fit.py and, for bf16, fit_bf16.py made all
//             coefficients, highest order first)
//   p         a result before scaling
//   v + v_lo  an unevaluated sum that carries about twice the precision
//
// Costs (an operation is one machine row; a select counts, bitcasts and negations do not; f64
// divisions come on top) and largest errors in ulp (f64: sampled only):
//
//              degree     operations          error
//             f32 f64   f32  f64  f16 bf16   f32   f64   method
//   exp         6  12    23   28   22    4   0.96  0.97  x = n ln 2 + r, e^r 2^n
//   exp2        6  11    20   25   17    3   0.88  0.85  x = n + r, 2^r 2^n
//   expm1       7  12    29   31   22   19   0.89  1.08  2^n (e^r - 1) + (2^n - 1)
//   sigmoid     6  12    32   32   36   11   0.97  2.24  w / (w + e^r), w = 2^-n, or 1 - that
//   tanh        9  15    32   24   21   10   0.80  2.40  addition theorem at n ln(2)/2; inverts
//   log        10  16    30   33   33   30   0.92  0.92  x = 2^n (1 + f); f64 divides
//   log2       10  16    35   39   35   35   0.94  1.22  the same, log2(e) in two parts
//   log1p      10  16    33   36   38   33   0.92  0.92  the same, f from x itself
//   erf        14  23    29   86   33   10   0.99  1.01  two polynomials; f64 divides
//   erfc        9  22    67   78   39   17   0.92  1.92  e^(-x^2) g(1 / (|x| + 3)); inverts
//   sin, cos    9  17    99  233   30   99   0.88  0.87  Payne-Hanek (f16: Cody-Waite)
//   pow            7    87  109   90   90   0.50  0.87  2^(y log2 x), all in f64; divides
//
// Where they are cheaper, bf16 has its own bodies, among them those of gelu (19 operations),
// gelu_tanh (10), silu (13) and softplus (12). gelu has one in f32, too (37 operations). Coarse
// bodies in f32 are within 2^-21 of the exact value: those of erfc (41 operations, of which
// exp(-x^2) has 23), sigmoid (27) and tanh (24).
//
// x86 processors take a microcode assist, some 100 cycles, for a product, fma or quotient that
// gives or takes a subnormal number. Arguments of ordinary size bring none about, also where the
// result is subnormal or 0: there its bits are made by a sum and integer rows. Exceptions: the
// bodies in bf16, the coarse bodies of erfc and sigmoid, and squares of reduced arguments below
// 2^-63 (2^-511 in f64).
//
// Methods: reduction of exp and log by Cody and Waite (1980); sums with a low part by Dekker
// (1971); the reduction of huge angles by Payne and Hanek (1983).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>

#include "braze/dtype.h"

namespace braze::math {

// ---------------------------------------------------------------------------------------------
// Building blocks
// ---------------------------------------------------------------------------------------------

/// The polynomial with these coefficients, highest order first, by Horner's rule.
template <class S, class... Coefficients>
S horner(const S& x, double highest, Coefficients... rest) {
  S sum = x.constant(highest);
  ((sum = fma(sum, x, x.constant(rest))), ...);
  return sum;
}

template <class S>
S i32(const S& x, uint32_t bits) {
  return x.constant_bits(DType::I32, bits);
}

template <class S>
S u32(const S& x, uint32_t bits) {
  return x.constant_bits(DType::U32, bits);
}

template <class S>
S infinity(const S& x) {
  return x.constant(std::numeric_limits<double>::infinity());
}

template <class S>
S quiet_nan(const S& x) {
  return x.constant(std::numeric_limits<double>::quiet_NaN());
}

/// `magnitude` (not negative) with the sign of `x`, both f32.
template <class S>
S with_sign_f32(const S& magnitude, const S& x) {
  const S sign = bit_and(bitcast(x, DType::I32), i32(x, 0x80000000u));
  return bitcast(bit_or(bitcast(magnitude, DType::I32), sign), DType::F32);
}

/// Added to a float below 2^22 in magnitude, it leaves the nearest integer in the low bits of the
/// sum: one fma multiplies and rounds, and a shift by 23 makes an exponent of the sum's bits.
inline constexpr double kRoundF32 = 0x1.8p23;
inline constexpr uint32_t kOneF32 = 0x3f800000u;

/// 2^k from a sum with kRoundF32, for -127 < k < 128.
template <class S>
S power_of_two_f32(const S& rounded) {
  const S exponent = shl(bitcast(rounded, DType::I32), i32(rounded, 23));
  return bitcast(exponent + i32(rounded, kOneF32), DType::F32);
}

/// 2^k from the shifted exponent k, but at least 2^-64, for -254 < k < 128. The power may be used
/// only in a sum or difference with a number near 1, which does not see the difference.
template <class S>
S bounded_power_of_two_f32(const S& exponent) {
  const S bits = exponent + i32(exponent, kOneF32);
  return bitcast(max(bits, i32(exponent, kOneF32 - (64u << 23))), DType::F32);
}

/// p 2^k from the shifted exponent k, rounded once, for a finite result, 2^-8 < p < 2 and
/// k >= -150. `is_subnormal` says where the result is below 2^-126. No product underflows, which
/// would cost x86 processors a microcode assist: the exponent is added to the bits of p, and the
/// sum of p 2^(k+149) and 2^23 holds the bits of a subnormal result. NaN is not kept.
template <class S>
S scaled_down_f32(const S& p, const S& exponent, const S& is_subnormal) {
  const S bits = bitcast(p, DType::I32) + exponent;
  const S sum = bitcast(bits + i32(p, 149u << 23), DType::F32) + p.constant(0x1p23);
  const S subnormal = bitcast(sum, DType::I32) - i32(p, 150u << 23);
  return bitcast(select(is_subnormal, subnormal, bits), DType::F32);
}

/// p 2^k from a sum with kRoundF32, as the value of an increasing function at x. The result is
/// subnormal for x below `normal`, infinite for x above `greatest`, and NaN for NaN.
template <class S>
S scaled_f32(const S& x, const S& p, const S& rounded, double normal, double greatest) {
  const S exponent = shl(bitcast(rounded, DType::I32), i32(x, 23));
  const S finite = scaled_down_f32(p, exponent, lt(x, x.constant(normal)));
  const S past = max(x, infinity(x));
  return select(le(x, x.constant(greatest)), finite, past);
}

// ---------------------------------------------------------------------------------------------
// exp, exp2, expm1, sigmoid in f32
// ---------------------------------------------------------------------------------------------

inline constexpr double kLog2E = 0x1.715476p+0;  // log2(e) = kLog2E + kLog2ELo
inline constexpr double kLog2ELo = 0x1.4ae0cp-26;
inline constexpr double kLn2 = 0x1.62e42ep-1;  // ln 2 = kLn2 + kLn2Lo, both positive
inline constexpr double kLn2Lo = 0x1.efa39ep-25;
/// The least x for which e^x >= 2^-126, and the greatest for which it is finite.
inline constexpr double kLeastNormalExpF32 = -0x1.5d589ep+6;
inline constexpr double kGreatestExpF32 = 0x1.62e42ep+6;

/// (e^r - 1 - r) / r^2 for |r| <= ln(2)/2, to 2^-28 of e^r.
template <class S>
S exp_tail_f32(const S& r) {
  return horner(r, 0.0013822662, 0.00836884, 0.041668247, 0.1666652, 0.49999994);
}

/// A result p 2^k: p and the sum of k and kRoundF32 (kRoundF64).
template <class S>
struct Power {
  S p, rounded;
};

/// x = n ln 2 + r and e^x = e^r 2^n.
template <class S>
Power<S> exp_parts_f32(const S& x) {
  const S rounded = fma(x, x.constant(kLog2E), x.constant(-0.085)) + x.constant(kRoundF32);
  const S n = rounded - x.constant(kRoundF32);
  S r = fma(n, x.constant(-kLn2), x);  // exact
  r = fma(n, x.constant(-kLn2Lo), r);
  const S q = horner(r, 0.00146364, 0.008360386, 0.041658476, 0.1666657, 0.5000002);
  return {x.constant(1.0) + fma(r * r, q, r), rounded};
}

/// e^-104 rounds to 0.
template <class S>
S exp_f32(const S& x) {
  const Power<S> power = exp_parts_f32(max(x, x.constant(-104.0)));
  return scaled_f32(x, power.p, power.rounded, kLeastNormalExpF32, kGreatestExpF32);
}

template <class S>
Power<S> exp2_parts_f32(const S& x) {
  const S rounded = x + x.constant(kRoundF32);
  const S r = x - (rounded - x.constant(kRoundF32));  // exact
  const S p =
      horner(r, 0.00015241314, 0.0013391303, 0.009618834, 0.05550359, 0.24022645, 0.6931472, 1.0);
  return {p, rounded};
}

template <class S>
S exp2_f32(const S& x) {
  const Power<S> power = exp2_parts_f32(max(x, x.constant(-150.0)));
  return scaled_f32(x, power.p, power.rounded, -126.0, 0x1.fffffep+6);
}

/// With w = 2^(n-1), e^x - 1 = 2 ((w - 1/2) + r w + (r^2 q + r_lo) w), of which the first two terms
/// are summed with a low part: where n = 1 and r < 0 they cancel. The half of 2^n stays finite
/// where the result does; it would lose bits of subnormal numbers, but for |x| < 2^-25 the result
/// is x.
template <class S>
S expm1_f32(const S& x) {
  const S low = max(x, x.constant(-18.0));
  const S y = min(low, x.constant(89.0));
  const S rounded = fma(y, x.constant(kLog2E), x.constant(kRoundF32));
  const S n = rounded - x.constant(kRoundF32);
  const S head = fma(n, x.constant(-kLn2), y);
  const S tail = n * x.constant(-kLn2Lo);
  const S r = head + tail;
  const S q = horner(r, 0.0001957662, 0.001393579, 0.008333889, 0.041666456, 0.16666664, 0.5);
  const S e = fma(r * r, q, tail);
  const S exponent = shl(bitcast(rounded, DType::I32), i32(x, 23));
  const S w = bitcast(exponent + i32(x, kOneF32 - 0x800000u), DType::F32);
  const S offset = w - x.constant(0.5);
  const S sum = fma(head, w, offset);
  const S offset_lo = (w - offset) - x.constant(0.5);
  const S sum_lo = fma(head, w, (offset - sum) + offset_lo);
  const S half = sum + fma(e, w, sum_lo);
  return select(lt(abs(x), x.constant(0x1p-25)), x, half + half);
}

/// With e^-|x| = w / P, P = 1 + e = e^r and w = 2^-n, sigmoid(-|x|) = w / (w + P). The remainder of
/// the reciprocal is 1 - y (1 + e + w) by its parts: without the last bit of y, 1 - y is exact. The
/// other half of the curve is 1 - sigmoid(-|x|). A w below 2^-64 counts as a factor alone.
template <class S>
S sigmoid_f32(const S& x) {
  const S a = min(abs(x), x.constant(104.0));
  const S rounded = fma(a, x.constant(-kLog2E), x.constant(kRoundF32));
  const S minus_n = rounded - x.constant(kRoundF32);
  S r = fma(minus_n, x.constant(kLn2), a);
  r = fma(minus_n, x.constant(kLn2Lo), r);
  const S one = x.constant(1.0);
  const S e = fma(r * r, exp_tail_f32(r), r);
  const S exponent = shl(bitcast(rounded, DType::I32), i32(x, 23));
  const S w = bounded_power_of_two_f32(exponent);
  const S near = bitcast(inverse((one + e) + w), DType::I32);
  const S y = bitcast(bit_and(near, i32(x, ~1u)), DType::F32);
  const S error = fma(-y, w, fma(-y, e, one - y));
  const S p = fma(y, error, y);
  const S negative = scaled_down_f32(p, exponent, lt(x, x.constant(kLeastNormalExpF32)));
  return select(lt(x, x.constant(0.0)), negative, fma(-p, w, one));
}

// ---------------------------------------------------------------------------------------------
// tanh in f32
// ---------------------------------------------------------------------------------------------

/// |x| = n ln(2)/2 + h. By the addition theorem, with A = 2^n + 1, B = 2^n - 1 and t = tanh(h),
/// tanh|x| = (A t + B) / (A + B t), where A and B are exact; n = 0 gives t itself. The quotient is
/// corrected by its exact remainder, so that only the rounding of t and the last one count.
/// n stops at 23, where A and B would stop being exact: from there h grows, and the polynomial is
/// still good enough for the last bit of 1 - 2^-24.
template <class S>
S tanh_f32(const S& x) {
  const S a = min(abs(x), x.constant(9.05));
  const S biased = fma(a, x.constant(2.0 * kLog2E), x.constant(-0.22));
  const S rounded = min(biased, x.constant(23.0)) + x.constant(kRoundF32);
  const S n = rounded - x.constant(kRoundF32);
  S h = fma(n, x.constant(-0.5 * kLn2), a);
  h = fma(n, x.constant(-0.5 * kLn2Lo), h);
  const S z = h * h;
  const S q = horner(z, 0.020397753, -0.05387851, 0.13333105, -0.3333333);
  const S t = fma(h * z, q, h);
  const S power = power_of_two_f32(rounded);
  const S plus = power + x.constant(1.0);
  const S minus = power - x.constant(1.0);
  const S num = fma(t, plus, minus);
  const S num_lo = fma(t, plus, minus - num);
  const S den = fma(t, minus, plus);
  const S den_lo = fma(t, minus, plus - den);
  const S y = inverse(den);
  const S quotient = num * y;
  const S rest = fma(-quotient, den_lo, fma(-quotient, den, num) + num_lo);
  return with_sign_f32(fma(rest, y, quotient), x);
}

// ---------------------------------------------------------------------------------------------
// log, log2, log1p in f32
// ---------------------------------------------------------------------------------------------

/// The bits of 3/2, minus one. kBelowThreeHalves - bits(m), shifted right by 23, is -n for the n
/// that brings m * 2^-n into [3/4, 3/2). This is -n and not n, because its product with a negative
/// constant is then -0 for n = 0, which log1p(-0) = -0 needs.
inline constexpr uint32_t kBelowThreeHalves = 0x3fc00000u - 1;
inline constexpr uint32_t kBelowFourThirds = 0x3faaaaabu - 1;

/// n ln 2 + log(1 + f) for -1/4 <= f <= 1/2, from -n.
template <class S>
S log_of_parts_f32(const S& minus_n, const S& f) {
  const S q = horner(f, -0.045073446, 0.10464522, -0.13162988, 0.14478822, -0.16647165, 0.19990806,
                     -0.25000098, 0.3333345, -0.5);
  const S tail = fma(f * f, q, minus_n * f.constant(-kLn2Lo));
  return fma(minus_n, f.constant(-kLn2), f + tail);
}

/// x = 2^n m, where m is in the octave below the number whose bits minus one are `below`.
template <class S>
struct PartsF32 {
  S minus_n, m;
};

template <class S>
PartsF32<S> split_f32(const S& x, uint32_t below) {
  const S tiny = lt(x, x.constant(0x1p-126));
  const S bits = bitcast(select(tiny, x * x.constant(0x1p25), x), DType::I32);
  const S minus_n = shr(i32(x, below) - bits, i32(x, 23));
  const S m = bitcast(bits + shl(minus_n, i32(x, 23)), DType::F32);
  return {convert(minus_n, DType::F32) + select(tiny, x.constant(25.0), x.constant(0.0)), m};
}

/// Adds the values of a logarithm at and beyond the ends of its domain. `finite` is the value
/// inside (0, inf).
template <class S>
S log_ends(const S& u, const S& finite) {
  const S zero = u.constant(0.0);
  const S outside = select(eq(u, zero), -infinity(u), quiet_nan(u));
  return select(gt(u, zero), select(lt(u, infinity(u)), finite, u), outside);
}

template <class S>
S log_f32(const S& x) {
  const PartsF32<S> parts = split_f32(x, kBelowThreeHalves);
  return log_ends(x, log_of_parts_f32(parts.minus_n, parts.m - x.constant(1.0)));
}

/// log2 by the same method, with n exact, log2(e) in two parts, and m in [2/3, 4/3), which loses
/// less precision.
template <class S>
S log2_f32(const S& x) {
  const PartsF32<S> parts = split_f32(x, kBelowFourThirds);
  const S f = parts.m - x.constant(1.0);
  const S q = horner(f, -0.18439947, 0.20208298, -0.17619322, 0.20198567, -0.24061278, 0.28869465,
                     -0.360672, 0.48089653, -0.7213475);
  const S log2_e = x.constant(kLog2E);
  const S product = f * log2_e;
  S product_lo = fma(f, log2_e, -product);
  product_lo = fma(f, x.constant(kLog2ELo), product_lo);
  product_lo = fma(f * f, q, product_lo);
  const S sum = product - parts.minus_n;
  const S sum_lo = product - (sum + parts.minus_n);
  return log_ends(x, sum + (sum_lo + product_lo));
}

/// n is that of u = 1 + x, but f = 2^-n (1 + x) - 1 is made from x itself and is almost always
/// exact, so the rounding of u has no effect. 2^-n x is made by adding exponents, because x is
/// normal or n is 0. From n = 127 on, 2^-n itself is lost, but it is then too small to count. For
/// |x| <= 2^-60 the result is x, and x does not enter products, which would underflow.
template <class S>
S log1p_f32(const S& x) {
  const S one = x.constant(1.0);
  const S u = one + x;
  const S minus_n = shr(i32(x, kBelowThreeHalves) - bitcast(u, DType::I32), i32(x, 23));
  const S scale = shl(minus_n, i32(x, 23));
  const S w = max(bitcast(scale + i32(x, kOneF32), DType::F32), x.constant(0.0));
  const S f = bitcast(bitcast(x, DType::I32) + scale, DType::F32) - (one - w);
  const S counts = gt(abs(x), x.constant(0x1p-60));
  const S g = select(counts, f, x.constant(0.0));
  const S value = log_of_parts_f32(convert(minus_n, DType::F32), g);
  return log_ends(u, select(counts, value, x));
}

// ---------------------------------------------------------------------------------------------
// erf, erfc in f32
// ---------------------------------------------------------------------------------------------

/// There are two polynomials: x + x q(x^2) for |x| below 1, and one in |x| - 2.3125 above. Beyond
/// 3.92, erf rounds to 1.
template <class S>
S erf_f32(const S& x) {
  const S a = abs(x);
  const S z = a * a;
  const S q = horner(z, 7.846173e-05, -0.0008007889, 0.0051880744, -0.026853692, 0.11283583,
                     -0.37612626, 0.12837917);
  const S small = fma(a, q, a);
  const S t = min(a, x.constant(3.92)) - x.constant(2.3125);
  const S large =
      horner(t, 1.1147125e-06, -2.1664998e-06, -1.554363e-05, 5.4292137e-05, 1.2018986e-05,
             -0.00036988585, 0.00080939755, -0.0002195215, -0.0031059466, 0.009525668, -0.015925061,
             0.01735564, -0.012419016, 0.0053702816, 0.9989259);
  return with_sign_f32(select(lt(a, x.constant(1.0)), small, large), x);
}

/// The greatest x for which erfc(x) >= 2^-126.
inline constexpr double kGreatestNormalErfcF32 = 0x1.2639bep+3;

/// erfc(a) = e^(-a^2) y H(y) with y = 1 / (a + 3), where H is smooth for a from 0 to 10.2, where
/// erfc underflows. Both factors and a^2 have a low part; that of y enters through the derivative
/// of the product.
template <class S>
S erfc_f32(const S& x) {
  const S one = x.constant(1.0);
  const S a = min(abs(x), x.constant(10.2));
  const S square = a * a;
  const S square_lo = fma(a, a, -square);
  const S rounded = fma(square, x.constant(-kLog2E), x.constant(kRoundF32));
  const S n = rounded - x.constant(kRoundF32);
  const S head = fma(n, x.constant(-kLn2), -square);
  const S tail = fma(n, x.constant(-kLn2Lo), -square_lo);
  const S r = head + tail;
  const S r_lo = tail - (r - head);
  const S p = one + r;
  const S p_lo = (r - (p - one)) + fma(r * r, exp_tail_f32(r), r_lo);

  const S three = x.constant(3.0);
  const S d = a + three;
  const S d_lo = a - (d - three);
  const S y = inverse(d);
  const S error = fma(-y, d_lo, fma(-y, d, one));  // 1 / (a + 3) = y (1 + error)
  const S t = y - x.constant(0.1875);
  const S q = horner(t, 3269.8997, -190.26918, -946.59174, -190.55179, 193.37178, 175.99776,
                     80.85937, 25.861547);
  const S c1 = x.constant(6.2788258), c0 = x.constant(1.1942899);
  const S h1 = fma(t, q, c1);
  const S h1_lo = fma(t, q, c1 - h1);
  const S h = fma(t, h1, c0);
  const S h_lo = fma(t, h1_lo, fma(t, h1, c0 - h));
  const S g = y * h;
  const S slope = fma(a * x.constant(-2.0), g, x.constant(1.12837916709551257390)) * d;
  const S g_lo = fma(error, slope, fma(y, h_lo, fma(y, h, -g)));

  const S product = p * g;
  // g_lo is some ulps of g, so that its product with p_lo counts.
  const S product_lo = fma(p_lo, g, fma(p + p_lo, g_lo, fma(p, g, -product)));
  const S value = product + product_lo;
  const S exponent = shl(bitcast(rounded, DType::I32), i32(x, 23));
  const S positive = scaled_down_f32(value, exponent, gt(x, x.constant(kGreatestNormalErfcF32)));
  const S negative = fma(-value, bounded_power_of_two_f32(exponent), x.constant(2.0));
  return select(ge(x, x.constant(0.0)), positive, negative);
}

// ---------------------------------------------------------------------------------------------
// sin, cos in f32
// ---------------------------------------------------------------------------------------------

/// |x| = quadrant * pi/2 + r + r_lo with |r| <= pi/4 (|r| <= 1 if quadrant is 0). quadrant is an
/// i32 of which only the two low bits count.
template <class S>
struct Angle {
  S quadrant, r, r_lo;
};

/// Payne and Hanek's reduction. |x| = M 2^(e-23) is multiplied by 96 bits of 2/pi which start where
/// the product's weight is 2, so that whole turns never appear: two bits are the quadrant, 62 its
/// fraction. The 96 bits come from seven words by a shift of 0 to 3 words (nine selects) and one of
/// 0 to 31 bits. This takes about 70 operations, three of them multiplications of 32-bit integers
/// to 64 bits, for every argument, because a body without branches has no cheaper case.
template <class S>
Angle<S> reduce_angle_f32(const S& x) {
  const S a = abs(x);
  const S bits = bitcast(a, DType::U32);
  const S exponent = shr(bits, u32(x, 23)) - u32(x, 127);
  const S mantissa = bit_or(bit_and(bits, u32(x, 0x7fffff)), u32(x, 0x800000));

  constexpr uint32_t kTwoOverPi[7] = {0x00000051u, 0x7cc1b727u, 0x220a94feu, 0x13abe8fau,
                                      0x9a6ee06du, 0xb14acc9eu, 0x21c820ffu};
  const S none = u32(x, 0);
  const S by_two = ne(bit_and(exponent, u32(x, 64)), none);
  const S by_one = ne(bit_and(exponent, u32(x, 32)), none);
  const auto word = [&](int i) {
    return select(by_two, u32(x, kTwoOverPi[i + 2]), u32(x, kTwoOverPi[i]));
  };
  const S even[5] = {word(0), word(1), word(2), word(3), word(4)};
  const S w[4] = {select(by_one, even[1], even[0]), select(by_one, even[2], even[1]),
                  select(by_one, even[3], even[2]), select(by_one, even[4], even[3])};
  const S left = bit_and(exponent, u32(x, 31));
  const S right = u32(x, 31) - left;
  const auto window = [&](int i) {
    return bit_or(shl(w[i], left), shr(shr(w[i + 1], u32(x, 1)), right));
  };

  // The 64 bits of the product in two words, the upper one modulo one turn.
  const auto wide = [](const S& part) { return convert(part, DType::I64); };
  const S wide_mantissa = wide(mantissa);
  const S shift = x.constant_bits(DType::I64, 32);
  const S middle = wide_mantissa * wide(window(1)) + shr(wide_mantissa * wide(window(2)), shift);
  const S low_mask = x.constant_bits(DType::I64, 0xffffffffu);
  const S lower = convert(bit_and(middle, low_mask), DType::U32);
  const S upper = mantissa * window(0) + convert(shr(middle, shift), DType::U32);

  // The nearest quadrant, and the remainder in units of 2^-30 quadrants: an integer and a fraction.
  const S shifted = upper + u32(x, 0x20000000u);
  const S quadrant = bitcast(shr(shifted, u32(x, 30)), DType::I32);
  const S units = bitcast(bit_and(shifted, u32(x, 0x3fffffffu)) - u32(x, 0x20000000u), DType::I32);
  const S fraction = convert(bitcast(shr(lower, u32(x, 1)), DType::I32), DType::F32);
  const S head = convert(units, DType::F32);
  const S spare = convert(units - convert(head, DType::I32), DType::F32);
  const S tail = fma(fraction, x.constant(0x1p-31), spare);
  const S turn = head + tail;
  const S turn_lo = tail - (turn - head);
  const S unit = x.constant(0x1.921fb6p-30);  // 2^-30 pi/2 in two parts
  const S unit_lo = x.constant(-0x1.777a5cp-55);
  const S r = turn * unit;
  const S r_lo = fma(turn, unit, -r) + fma(turn, unit_lo, turn_lo * unit);

  const S small = lt(a, x.constant(1.0));
  return {select(small, i32(x, 0), quadrant), select(small, a, r),
          select(small, x.constant(0.0), r_lo)};
}

/// sin(r + r_lo) for |r| <= 1.
template <class S>
S sin_of_parts_f32(const S& r, const S& r_lo, const S& z) {
  const S q = horner(z, 2.7204396e-06, -0.00019841435, 0.0083333505, -0.16666667);
  const S cosine = fma(z, r.constant(-0.5), r.constant(1.0));
  return r + fma(r * z, q, r_lo * cosine);
}

/// cos(r + r_lo) for |r| <= 1.
template <class S>
S cos_of_parts_f32(const S& r, const S& r_lo, const S& z) {
  const S one = r.constant(1.0);
  const S q = horner(z, -2.737944e-07, 2.4804975e-05, -0.0013888932, 0.041666668);
  const S half = z * r.constant(0.5);
  const S head = one - half;
  const S tail = (one - head) - half;
  return head + fma(z * z, q, fma(-r, r_lo, tail));
}

/// sin for `turns` = 0, and for 1 cos, which is a quarter turn ahead; both without the sign of x.
/// x - x is NaN for infinities and NaN, otherwise 0.
template <class S>
S sin_ahead_f32(const S& x, uint32_t turns) {
  const Angle<S> angle = reduce_angle_f32(x);
  const S quadrant = angle.quadrant + i32(x, turns);
  const S z = angle.r * angle.r;
  const S odd = ne(bit_and(quadrant, i32(x, 1)), i32(x, 0));
  const S value = select(odd, cos_of_parts_f32(angle.r, angle.r_lo, z),
                         sin_of_parts_f32(angle.r, angle.r_lo, z)) +
                  (x - x);
  const S sign = shl(bit_and(quadrant, i32(x, 2)), i32(x, 30));
  return bitcast(bit_xor(bitcast(value, DType::I32), sign), DType::F32);
}

template <class S>
S sin_f32(const S& x) {
  const S sign = bit_and(bitcast(x, DType::I32), i32(x, 0x80000000u));
  return bitcast(bit_xor(bitcast(sin_ahead_f32(x, 0), DType::I32), sign), DType::F32);
}

template <class S>
S cos_f32(const S& x) {
  return sin_ahead_f32(x, 1);
}

// ---------------------------------------------------------------------------------------------
// f64: the same methods with longer polynomials and fewer low parts
// ---------------------------------------------------------------------------------------------

template <class S>
S i64(const S& x, uint64_t bits) {
  return x.constant_bits(DType::I64, bits);
}

template <class S>
S with_sign_f64(const S& magnitude, const S& x) {
  const S sign = bit_and(bitcast(x, DType::I64), i64(x, uint64_t{1} << 63));
  return bitcast(bit_or(bitcast(magnitude, DType::I64), sign), DType::F64);
}

inline constexpr double kRoundF64 = 0x1.8p52;
inline constexpr uint64_t kOneF64 = 0x3ff0000000000000u;
inline constexpr double kLog2EF64 = 0x1.71547652b82fep+0;
inline constexpr double kLog2ELoF64 = 0x1.777d0ffda0d24p-56;
inline constexpr double kLn2F64 = 0x1.62e42fefa39efp-1;
inline constexpr double kLn2LoF64 = 0x1.abc9e3b39803fp-56;
inline constexpr double kLeastNormalExpF64 = -0x1.6232bdd7abcd2p+9;
inline constexpr double kGreatestExpF64 = 0x1.62e42fefa39efp+9;

/// 2^k from a sum with kRoundF64, for -1023 < k < 1024.
template <class S>
S power_of_two_f64(const S& rounded) {
  const S exponent = shl(bitcast(rounded, DType::I64), i64(rounded, 52));
  return bitcast(exponent + i64(rounded, kOneF64), DType::F64);
}

// As in f32; here the exponent may be as low as -1100, and p as low as 2^-8.

template <class S>
S bounded_power_of_two_f64(const S& exponent) {
  const S bits = exponent + i64(exponent, kOneF64);
  return bitcast(max(bits, i64(exponent, kOneF64 - (uint64_t{128} << 52))), DType::F64);
}

template <class S>
S scaled_down_f64(const S& p, const S& exponent, const S& is_subnormal) {
  const S bits = bitcast(p, DType::I64) + exponent;
  const S sum = bitcast(bits + i64(p, uint64_t{1074} << 52), DType::F64) + p.constant(0x1p52);
  const S subnormal = bitcast(sum, DType::I64) - i64(p, uint64_t{1075} << 52);
  return bitcast(select(is_subnormal, subnormal, bits), DType::F64);
}

template <class S>
S scaled_f64(const S& x, const S& p, const S& rounded, double normal, double greatest) {
  const S exponent = shl(bitcast(rounded, DType::I64), i64(x, 52));
  const S finite = scaled_down_f64(p, exponent, lt(x, x.constant(normal)));
  const S past = max(x, infinity(x));
  return select(le(x, x.constant(greatest)), finite, past);
}

/// (e^r - 1 - r) / r^2 for |r| <= ln(2)/2.
template <class S>
S exp_tail_f64(const S& r) {
  return horner(r, 0x1.1ea5641012173p-29, 0x1.af6b0429b69b8p-26, 0x1.27e5635809746p-22,
                0x1.71ddf0cd20697p-19, 0x1.a01a01668b471p-16, 0x1.a01a01b322d84p-13,
                0x1.6c16c16c22e43p-10, 0x1.111111110ed9cp-7, 0x1.555555555553ap-5,
                0x1.555555555555bp-3, 0x1p-1);
}

template <class S>
S exp_f64(const S& x) {
  const S y = max(x, x.constant(-746.0));
  const S rounded = fma(y, x.constant(kLog2EF64), x.constant(kRoundF64));
  const S n = rounded - x.constant(kRoundF64);
  S r = fma(n, x.constant(-kLn2F64), y);
  r = fma(n, x.constant(-kLn2LoF64), r);
  const S p = x.constant(1.0) + fma(r * r, exp_tail_f64(r), r);
  return scaled_f64(x, p, rounded, kLeastNormalExpF64, kGreatestExpF64);
}

/// 2^r for |r| <= 1/2.
template <class S>
S exp2_of_part_f64(const S& r) {
  return horner(r, 0x1.e945047d20072p-32, 0x1.e61af3c05ddf6p-28, 0x1.b525408df572ep-24,
                0x1.62bfc7d7df9a8p-20, 0x1.ffcbfc58eec80p-17, 0x1.4309130ebe982p-13,
                0x1.5d87fe78a11e4p-10, 0x1.3b2ab6fba01b2p-7, 0x1.c6b08d704a122p-5,
                0x1.ebfbdff82c5a4p-3, 0x1.62e42fefa39efp-1, 1.0);
}

template <class S>
S exp2_f64(const S& x) {
  const S y = max(x, x.constant(-1080.0));
  const S rounded = y + x.constant(kRoundF64);
  const S p = exp2_of_part_f64(y - (rounded - x.constant(kRoundF64)));
  return scaled_f64(x, p, rounded, -1022.0, 0x1.fffffffffffffp+9);
}

template <class S>
S expm1_f64(const S& x) {
  const S low = max(x, x.constant(-40.0));
  const S y = min(low, x.constant(710.0));
  const S rounded = fma(y, x.constant(kLog2EF64), x.constant(kRoundF64));
  const S n = rounded - x.constant(kRoundF64);
  const S head = fma(n, x.constant(-kLn2F64), y);
  const S tail = n * x.constant(-kLn2LoF64);
  const S r = head + tail;
  const S e = fma(r * r, exp_tail_f64(r), tail);
  const S exponent = shl(bitcast(rounded, DType::I64), i64(x, 52));
  const S w = bitcast(exponent + i64(x, kOneF64 - (uint64_t{1} << 52)), DType::F64);
  const S offset = w - x.constant(0.5);
  const S sum = fma(head, w, offset);
  const S sum_lo = fma(head, w, offset - sum);
  const S half = sum + fma(e, w, sum_lo);
  return select(lt(abs(x), x.constant(0x1p-54)), x, half + half);
}

template <class S>
S sigmoid_f64(const S& x) {
  const S a = min(abs(x), x.constant(746.0));
  const S rounded = fma(a, x.constant(-kLog2EF64), x.constant(kRoundF64));
  const S minus_n = rounded - x.constant(kRoundF64);
  S r = fma(minus_n, x.constant(kLn2F64), a);
  r = fma(minus_n, x.constant(kLn2LoF64), r);
  const S one = x.constant(1.0);
  const S p = one + fma(r * r, exp_tail_f64(r), r);
  const S exponent = shl(bitcast(rounded, DType::I64), i64(x, 52));
  const S w = bounded_power_of_two_f64(exponent);
  const S y = one / (w + p);
  const S negative = scaled_down_f64(y, exponent, lt(x, x.constant(kLeastNormalExpF64)));
  return select(lt(x, x.constant(0.0)), negative, fma(-y, w, one));
}

template <class S>
S tanh_f64(const S& x) {
  const S a = min(abs(x), x.constant(20.0));
  const S biased = fma(a, x.constant(2.0 * kLog2EF64), x.constant(-0.22));
  const S rounded = biased + x.constant(kRoundF64);
  const S n = rounded - x.constant(kRoundF64);
  S h = fma(n, x.constant(-0.5 * kLn2F64), a);
  h = fma(n, x.constant(-0.5 * kLn2LoF64), h);
  const S z = h * h;
  const S q = horner(z, -0x1.59792743b50b1p-10, 0x1.d50be68cddafdp-9, -0x1.226854e322959p-7,
                     0x1.664f331b2ddbdp-6, -0x1.ba1ba19051f9dp-5, 0x1.11111110fdb27p-3,
                     -0x1.55555555554f4p-2);
  const S t = fma(h * z, q, h);
  const S power = power_of_two_f64(rounded);
  const S plus = power + x.constant(1.0);
  const S minus = power - x.constant(1.0);
  return with_sign_f64(fma(t, plus, minus) / fma(t, minus, plus), x);
}

inline constexpr uint64_t kBelowThreeHalvesF64 = 0x3ff8000000000000u - 1;

/// log(1 + f) - f = s (f^2/2 + R(s)) - f^2/2 with s = f / (2 + f): R is half as long as a
/// polynomial in f would be, for one division.
template <class S>
S log_tail_f64(const S& f, const S& extra) {
  const S s = f / (f.constant(2.0) + f);
  const S z = s * s;
  const S q = horner(z, 0x1.3adb0db9447d1p-3, 0x1.384f1ce1eedcap-3, 0x1.7475129926cf9p-3,
                     0x1.c71c0037b5dcfp-3, 0x1.249249b3fc905p-2, 0x1.99999998ee177p-2,
                     0x1.5555555555780p-1);
  const S half = f * f * f.constant(0.5);
  return fma(s, fma(z, q, half), extra) - half;
}

template <class S>
S log_of_parts_f64(const S& minus_n, const S& f) {
  const S tail = log_tail_f64(f, minus_n * f.constant(-kLn2LoF64));
  return fma(minus_n, f.constant(-kLn2F64), f + tail);
}

template <class S>
struct PartsF64 {
  S minus_n, f;
};

template <class S>
PartsF64<S> split_f64(const S& x) {
  const S tiny = lt(x, x.constant(0x1p-1022));
  const S bits = bitcast(select(tiny, x * x.constant(0x1p54), x), DType::I64);
  const S minus_n = shr(i64(x, kBelowThreeHalvesF64) - bits, i64(x, 52));
  const S m = bitcast(bits + shl(minus_n, i64(x, 52)), DType::F64);
  return {convert(minus_n, DType::F64) + select(tiny, x.constant(54.0), x.constant(0.0)),
          m - x.constant(1.0)};
}

template <class S>
S log_f64(const S& x) {
  const PartsF64<S> parts = split_f64(x);
  return log_ends(x, log_of_parts_f64(parts.minus_n, parts.f));
}

template <class S>
S log2_f64(const S& x) {
  const PartsF64<S> parts = split_f64(x);
  const S& f = parts.f;
  const S log2_e = x.constant(kLog2EF64);
  const S product = f * log2_e;
  S product_lo = fma(f, log2_e, -product);
  product_lo = fma(f, x.constant(kLog2ELoF64), product_lo);
  product_lo = fma(log_tail_f64(f, x.constant(0.0)), log2_e, product_lo);
  const S sum = product - parts.minus_n;
  const S sum_lo = product - (sum + parts.minus_n);
  return log_ends(x, sum + (sum_lo + product_lo));
}

// pow: the power of |x| by log2 and exp2, and then the sign and the cases without a power. f32 and
// the 16-bit types compute it in f64, where log2 and exp2 are exact enough for their last bits.

/// log2(x) for x >= 0 in two parts, to about 2^-64 of itself: log(1 + f) = 2 atanh(s) with s = f /
/// (2 + f), and atanh(s) = s (1 + z (1/3 + z q(z))), z = s^2. The series has low parts as far as
/// its second term.
template <class S>
struct Parts {
  S head, tail;
};

template <class S>
Parts<S> log2_parts_f64(const S& x) {
  const PartsF64<S> parts = split_f64(x);
  const S& f = parts.f;
  const S one = x.constant(1.0), two = x.constant(2.0);
  const S d = two + f;
  const S d_lo = f - (d - two);
  const S inverse_d = one / d;
  const S s = f * inverse_d;
  const S s_lo = fma(-s, d_lo, fma(-s, d, f)) * inverse_d;
  const S z = s * s;
  const S z_lo = fma(s + s, s_lo, fma(s, s, -z));
  const S q = horner(z, 0x1.019321e98f5cdp-4, 0x1.dac960cbc10bcp-5, 0x1.113a548dcb892p-4,
                     0x1.3b1296444e305p-4, 0x1.745d1bd12fe44p-4, 0x1.c71c71bc4f36ep-4,
                     0x1.2492492498f13p-3, 0x1.9999999999967p-3);
  const S third = x.constant(0x1.5555555555555p-2);
  const S c = fma(z, q, third);
  const S c_lo = fma(z, q, third - c) + x.constant(0x1.5555555555555p-56);
  const S u = z * c;
  const S u_lo = fma(z, c_lo, fma(z_lo, c, fma(z, c, -u)));
  const S v = one + u;
  const S v_lo = (one - v) + u + u_lo;
  const S w = s * v;
  const S w_lo = fma(s, v_lo, fma(s_lo, v, fma(s, v, -w)));
  const S factor = x.constant(0x1.71547652b82fep+1);  // 2 log2(e) in two parts
  const S l = w * factor;
  const S l_lo = fma(w, x.constant(0x1.777d0ffda0d24p-55), fma(w_lo, factor, fma(w, factor, -l)));
  const S head = l - parts.minus_n;
  return {log_ends(x, head), (l - (head + parts.minus_n)) + l_lo};
}

/// x^y from |x|^y, as ISO C defines it: 1 if y = 0 or x = 1, whatever the other operand is; the
/// sign of x for odd y; NaN for a negative finite x and a y that is not an integer.
template <class S>
S signed_power_f64(const S& x, const S& y, const S& power) {
  const S zero = x.constant(0.0), one = x.constant(1.0);
  const S half = y * x.constant(0.5);
  const S integer = eq(trunc(y), y);
  const S odd = logical_and(integer, ne(trunc(half), half));
  const S is_one = logical_or(eq(y, zero), eq(abs(x), one));
  const S sign = bit_and(bitcast(x, DType::I64), i64(x, uint64_t{1} << 63));
  const S bits = bitcast(select(is_one, one, power), DType::I64);
  const S value = bitcast(bit_xor(bits, select(odd, sign, i64(x, 0))), DType::F64);
  const S real = logical_or(integer, logical_or(ge(x, zero), eq(x, -infinity(x))));
  return select(real, value, quiet_nan(x));
}

/// If |y log2 x| is too large or NaN, the low parts are no numbers either. The low part decides at
/// the ends of the range: if the high part is 1024, only a negative low part gives finite results;
/// at -1022 a negative low part gives subnormal ones.
template <class S>
S pow_f64(const S& x, const S& y) {
  const Parts<S> log = log2_parts_f64(abs(x));
  const S t = y * log.head;
  const S t_lo = fma(y, log.tail, fma(y, log.head, -t));
  const S low = max(t, x.constant(-1080.0));
  const S bounded = min(low, x.constant(1025.0));
  const S rounded = bounded + x.constant(kRoundF64);
  const S r = bounded - (rounded - x.constant(kRoundF64));
  const S known = select(eq(bounded, t), t_lo, x.constant(0.0));
  const S rest = min(known, x.constant(1024.0) - t);
  const S p = exp2_of_part_f64(r + rest);
  return signed_power_f64(x, y, scaled_f64(t, p, rounded, -0x1.fefffffffffffp+9, 1024.0));
}

/// x^y of f32 in f64, with a relative error below 2^-44.
template <class S>
S wide_pow(const S& x, const S& y) {
  const S base = convert(x, DType::F64), exponent = convert(y, DType::F64);
  return signed_power_f64(base, exponent, exp2_f64(exponent * log2_f64(abs(base))));
}

template <class S>
S pow_f32(const S& x, const S& y) {
  return convert(wide_pow(x, y), DType::F32);
}

template <class S>
S log1p_f64(const S& x) {
  const S one = x.constant(1.0);
  const S u = one + x;
  const S minus_n = shr(i64(x, kBelowThreeHalvesF64) - bitcast(u, DType::I64), i64(x, 52));
  const S scale = shl(minus_n, i64(x, 52));
  const S w = max(bitcast(scale + i64(x, kOneF64), DType::F64), x.constant(0.0));
  const S f = bitcast(bitcast(x, DType::I64) + scale, DType::F64) - (one - w);
  const S counts = gt(abs(x), x.constant(0x1p-60));
  const S g = select(counts, f, x.constant(0.0));
  const S value = log_of_parts_f64(convert(minus_n, DType::F64), g);
  return log_ends(u, select(counts, value, x));
}

/// erfc(a) for a >= 0.
template <class S>
Power<S> erfc_parts_f64(const S& a) {
  const S one = a.constant(1.0);
  const S square = a * a;
  const S square_lo = fma(a, a, -square);
  const S rounded = fma(square, a.constant(-kLog2EF64), a.constant(kRoundF64));
  const S n = rounded - a.constant(kRoundF64);
  const S head = fma(n, a.constant(-kLn2F64), -square);
  const S tail = fma(n, a.constant(-kLn2LoF64), -square_lo);
  const S r = head + tail;
  const S p = one + r;
  const S p_lo = (r - (p - one)) + fma(r * r, exp_tail_f64(r), tail - (r - head));

  const S four = a.constant(4.0);
  const S d = a + four;
  const S d_lo = a - (d - four);
  const S y = one / d;
  const S error = fma(-y, d_lo, fma(-y, d, one));
  const S t = y - a.constant(0.125);
  const S h = horner(
      t, 0x1.c1130718e524cp+35, 0x1.065347764c6b5p+33, -0x1.069dd88269dd9p+34,
      -0x1.23142fcaf77eep+29, 0x1.0bb89ce8acaf1p+31, 0x1.5756a2a96ebfep+27, -0x1.c6f37f0aafd5fp+27,
      -0x1.7f2a0dbc676dap+25, 0x1.3b1c96d5961cbp+24, 0x1.3c74fcad8f6f5p+23, -0x1.e7fb09c8aeffdp+17,
      -0x1.72cddf1620988p+20, -0x1.dd283a5d3a8fep+18, 0x1.269b56f4ec218p+15, 0x1.908f470305915p+16,
      0x1.b00c052a35d7ep+15, 0x1.38dbd2c91fbe7p+14, 0x1.645fd8a4bfb20p+12, 0x1.52cac2370f19ap+10,
      0x1.14eacb1ad02dbp+8, 0x1.8be202d26c741p+5, 0x1.f3fe31ecb49c0p+2, 0x1.18932bf08e154p+0);
  const S g = y * h;
  const S slope = fma(a * a.constant(-2.0), g, a.constant(1.12837916709551257390)) * d;
  const S g_lo = fma(error, slope, fma(y, h, -g));

  const S product = p * g;
  const S product_lo = fma(p_lo, g, fma(p, g_lo, fma(p, g, -product)));
  return {product + product_lo, rounded};
}

inline constexpr double kGreatestNormalErfcF64 = 0x1.a8b12fc6e4891p+4;

template <class S>
S erfc_f64(const S& x) {
  const Power<S> power = erfc_parts_f64(min(abs(x), x.constant(27.5)));
  const S exponent = shl(bitcast(power.rounded, DType::I64), i64(x, 52));
  const S is_subnormal = gt(x, x.constant(kGreatestNormalErfcF64));
  const S positive = scaled_down_f64(power.p, exponent, is_subnormal);
  const S negative = fma(-power.p, bounded_power_of_two_f64(exponent), x.constant(2.0));
  return select(ge(x, x.constant(0.0)), positive, negative);
}

/// Below 1 this is a polynomial, and above it is 1 - erfc.
template <class S>
S erf_f64(const S& x) {
  const S a = abs(x);
  const S z = a * a;
  const S q = horner(z, -0x1.ab14d1c2218efp-31, 0x1.d6e38b3ed90a2p-27, -0x1.5bfe6a1bf07c4p-23,
                     0x1.b97e422993aafp-20, -0x1.f4ca2018a04ffp-17, 0x1.f9a2b751d8cc2p-14,
                     -0x1.c02db0147aad0p-11, 0x1.565bccf7e1aa3p-8, -0x1.b82ce311ee03ep-6,
                     0x1.ce2f21a0408d0p-4, -0x1.812746b0379b2p-2, 0x1.06eba8214db68p-3);
  const S small = fma(a, q, a);
  const Power<S> power = erfc_parts_f64(min(a, x.constant(6.0)));
  const S large = fma(-power.p, power_of_two_f64(power.rounded), x.constant(1.0));
  return with_sign_f64(select(lt(a, x.constant(1.0)), small, large), x);
}

/// Payne and Hanek's reduction as in f32, with six words of 2/pi out of 38 (61 selects), ten
/// products of 32-bit numbers and 128 bits of the product: about 230 operations.
template <class S>
Angle<S> reduce_angle_f64(const S& x) {
  const S a = abs(x);
  const S bits = bitcast(a, DType::I64);
  const S exponent = convert(shr(bits, i64(x, 52)) - i64(x, 1023), DType::I32);
  const S mask = i64(x, 0xffffffffu);
  const S shift = i64(x, 32);
  const S low_half = bit_and(bits, mask);
  const S high_half = bit_or(bit_and(shr(bits, shift), i64(x, 0xfffff)), i64(x, 0x100000));

  constexpr uint32_t kTwoOverPi[38] = {
      0x00000000u, 0x0000028bu, 0xe60db939u, 0x1054a7f0u, 0x9d5f47d4u, 0xd377036du, 0x8a5664f1u,
      0x0e4107f9u, 0x458eaf7au, 0xef1586dcu, 0x91b8e909u, 0x374b8019u, 0x24bba827u, 0x464873f8u,
      0x77ac72c4u, 0xa69cfba2u, 0x08d7d4bau, 0xed1213a6u, 0x71c09ad1u, 0x7df904e6u, 0x4758e60du,
      0x4ce7d272u, 0x117e2ef7u, 0xe4a0ec7fu, 0xe25fff78u, 0x16603fbcu, 0xbc462d68u, 0x29b47db4u,
      0xd9fb3c9fu, 0x2c26dd3du, 0x18fd9a79u, 0x7fa8b5d4u, 0x9eeb1fafu, 0x97c5ecf4u, 0x1ce7de29u,
      0x4a4ba9afu, 0xed7ec47eu, 0x35742158u};
  // Shifts by words in five steps. Each step keeps as many words as the steps after it can reach.
  const S none = i32(x, 0);
  const auto has = [&](uint32_t bit) { return ne(bit_and(exponent, i32(x, bit)), none); };
  const auto pick = [](const S& c, const auto& words, auto&& result, int by, int count) {
    for (int i = 0; i < count; ++i) result[i] = select(c, words[i + by], words[i]);
  };
  S words[38];
  for (int i = 0; i < 38; ++i) words[i] = u32(x, kTwoOverPi[i]);
  S by_16[22], by_8[14], by_4[10], by_2[8], w[7];
  pick(has(512), words, by_16, 16, 22);
  pick(has(256), by_16, by_8, 8, 14);
  pick(has(128), by_8, by_4, 4, 10);
  pick(has(64), by_4, by_2, 2, 8);
  pick(has(32), by_2, w, 1, 7);
  const S left = bitcast(bit_and(exponent, i32(x, 31)), DType::U32);
  const S right = u32(x, 31) - left;
  const auto window = [&](int i) {
    return convert(bit_or(shl(w[i], left), shr(shr(w[i + 1], u32(x, 1)), right)), DType::I64);
  };

  // Columns of 32 bits, the highest first, of the product modulo one turn.
  const S v[6] = {window(0), window(1), window(2), window(3), window(4), window(5)};
  const auto low_of = [&](const S& product) { return bit_and(product, mask); };
  const auto high_of = [&](const S& product) { return bit_and(shr(product, shift), mask); };
  S p[5], q[6];
  for (int i = 0; i < 5; ++i) p[i] = low_half * v[i];
  for (int i = 1; i < 6; ++i) q[i] = high_half * v[i];
  const S c2 = low_of(p[3]) + high_of(p[4]) + low_of(q[4]) + high_of(q[5]);
  const S c3 = low_of(p[2]) + high_of(p[3]) + low_of(q[3]) + high_of(q[4]) + shr(c2, shift);
  const S c4 = low_of(p[1]) + high_of(p[2]) + low_of(q[2]) + high_of(q[3]) + shr(c3, shift);
  const S c5 = low_of(p[0]) + high_of(p[1]) + low_of(q[1]) + high_of(q[2]) + shr(c4, shift);
  const S upper = shl(c5, shift) + low_of(c4);
  const S lower = bit_or(shl(low_of(c3), i64(x, 31)), shr(low_of(c2), i64(x, 1)));

  const S half = i64(x, uint64_t{1} << 61);
  const S shifted = upper + half;
  const S quadrant = convert(bit_and(shr(shifted, i64(x, 62)), i64(x, 3)), DType::I32);
  const S units = bit_and(shifted, i64(x, (uint64_t{1} << 62) - 1)) - half;
  const S head = convert(units, DType::F64);
  const S spare = convert(units - convert(head, DType::I64), DType::F64);
  const S tail = fma(convert(lower, DType::F64), x.constant(0x1p-63), spare);
  const S turn = head + tail;
  const S turn_lo = tail - (turn - head);
  const S unit = x.constant(0x1.921fb54442d18p-62);  // 2^-62 pi/2 in two parts
  const S unit_lo = x.constant(0x1.1a62633145c07p-116);
  const S r = turn * unit;
  const S r_lo = fma(turn, unit, -r) + fma(turn, unit_lo, turn_lo * unit);

  const S small = lt(a, x.constant(1.0));
  return {select(small, i32(x, 0), quadrant), select(small, a, r),
          select(small, x.constant(0.0), r_lo)};
}

template <class S>
S sin_of_parts_f64(const S& r, const S& r_lo, const S& z) {
  const S q = horner(z, -0x1.a833598107f74p-41, 0x1.611a2968a5fe2p-33, -0x1.ae64453ad21f4p-26,
                     0x1.71de3a454bd22p-19, -0x1.a01a01a009c1cp-13, 0x1.1111111111093p-7,
                     -0x1.5555555555555p-3);
  const S cosine = fma(z, r.constant(-0.5), r.constant(1.0));
  return r + fma(r * z, q, r_lo * cosine);
}

template <class S>
S cos_of_parts_f64(const S& r, const S& r_lo, const S& z) {
  const S one = r.constant(1.0);
  const S q = horner(z, 0x1.a84832cae3dcbp-45, -0x1.938be084089bep-37, 0x1.1eed83cec4448p-29,
                     -0x1.27e4fb6afe9c4p-22, 0x1.a01a01a00a18ap-16, -0x1.6c16c16c16b70p-10,
                     0x1.5555555555555p-5);
  const S half = z * r.constant(0.5);
  const S head = one - half;
  const S tail = (one - head) - half;
  return head + fma(z * z, q, fma(-r, r_lo, tail));
}

/// sin for `turns` = 0, and for 1 cos, which is a quarter turn ahead; both without the sign of x.
template <class S>
S sin_ahead_f64(const S& x, uint32_t turns) {
  const Angle<S> angle = reduce_angle_f64(x);
  const S quadrant = angle.quadrant + i32(x, turns);
  const S z = angle.r * angle.r;
  const S odd = ne(bit_and(quadrant, i32(x, 1)), i32(x, 0));
  const S value = select(odd, cos_of_parts_f64(angle.r, angle.r_lo, z),
                         sin_of_parts_f64(angle.r, angle.r_lo, z)) +
                  (x - x);
  const S sign = shl(convert(bit_and(quadrant, i32(x, 2)), DType::I64), i64(x, 62));
  return bitcast(bit_xor(bitcast(value, DType::I64), sign), DType::F64);
}

template <class S>
S sin_f64(const S& x) {
  const S sign = bit_and(bitcast(x, DType::I64), i64(x, uint64_t{1} << 63));
  return bitcast(bit_xor(bitcast(sin_ahead_f64(x, 0), DType::I64), sign), DType::F64);
}

template <class S>
S cos_f64(const S& x) {
  return sin_ahead_f64(x, 1);
}

// ---------------------------------------------------------------------------------------------
// Coarse bodies in f32: within 2^-21 of the exact value, and 4 ulp of subnormal numbers
// ---------------------------------------------------------------------------------------------

/// erfc(a) = e^(-a^2) y H(y) with y = 1 / (a + 2). The power is exp(-(x x)) of the table, of which
/// a graph that also needs it (as the derivative of erfc does) computes only one. What x x loses by
/// its rounding enters to first order.
template <class S>
S erfc_coarse(const S& x) {
  const S power = exp_f32(-(x * x));
  const S a = min(abs(x), x.constant(10.2));
  const S lost = fma(a, a, -(a * a));
  const S y = inverse(a + x.constant(2.0));
  const S h = horner(y - x.constant(0.25), -30.339563, 12.379687, 12.210487, -6.59247, -5.500112,
                     2.3318608, 4.471519, 2.7486439, 1.0215827);
  const S product = power * (y * h);
  const S positive = fma(-lost, product, product);
  return select(ge(x, x.constant(0.0)), positive, x.constant(2.0) - positive);
}

/// 1 / (1 + e) and e / (1 + e) with e = e^-|x|.
template <class S>
S sigmoid_coarse(const S& x) {
  const S a = min(abs(x), x.constant(104.0));
  const S rounded = fma(a, x.constant(-kLog2E), x.constant(kRoundF32));
  const S minus_n = rounded - x.constant(kRoundF32);
  S r = fma(minus_n, x.constant(-kLn2), -a);
  r = fma(minus_n, x.constant(-kLn2Lo), r);
  const S one = x.constant(1.0);
  const S p = one + fma(r * r, exp_tail_f32(r), r);
  const S exponent = shl(bitcast(rounded, DType::I32), i32(x, 23));
  const S e = scaled_down_f32(p, exponent, gt(a, x.constant(-kLeastNormalExpF32)));
  const S y = inverse(fma(p, bounded_power_of_two_f32(exponent), one));
  return select(ge(x, x.constant(0.0)), y, e * y);
}

/// As tanh_f32, without low parts.
template <class S>
S tanh_coarse(const S& x) {
  const S a = min(abs(x), x.constant(9.05));
  const S biased = fma(a, x.constant(2.0 * kLog2E), x.constant(-0.22));
  const S rounded = min(biased, x.constant(23.0)) + x.constant(kRoundF32);
  const S n = rounded - x.constant(kRoundF32);
  S h = fma(n, x.constant(-0.5 * kLn2), a);
  h = fma(n, x.constant(-0.5 * kLn2Lo), h);
  const S z = h * h;
  const S q = horner(z, 0.020397753, -0.05387851, 0.13333105, -0.3333333);
  const S t = fma(h * z, q, h);
  const S power = power_of_two_f32(rounded);
  const S plus = power + x.constant(1.0);
  const S minus = power - x.constant(1.0);
  return with_sign_f32(fma(t, plus, minus) * inverse(fma(t, minus, plus)), x);
}

// ---------------------------------------------------------------------------------------------
// gelu in f32: within 2^-21 of the exact value, and 4 ulp of subnormal numbers
// ---------------------------------------------------------------------------------------------

/// The greatest x for which x P(X <= -x) >= 2^-126.
inline constexpr double kGreatestNormalGeluF32 = 0x1.a4ae0cp+3;

/// x P(X <= x) = max(x, 0) - a P(X <= -a) with a = |x|, where P(X <= -a) = e^(-a^2/2) p(a) / q(a).
/// e^(-a^2/2) is 2^n e^(-r/2), and `e` is e^(-r/2) - 1. Instead of max(x, 0), x < 0 takes part as
/// x 0, which gives zeros their sign, and NaN for -inf. Beyond 14.4, a P(X <= -a) rounds to 0.
template <class S>
S gelu_f32(const S& x) {
  const S a = min(abs(x), x.constant(14.4));
  const S square = a * a;
  const S square_lo = fma(a, a, -square);
  const S rounded = fma(square, x.constant(-0.5 * kLog2E), x.constant(kRoundF32));
  const S n = rounded - x.constant(kRoundF32);
  const S r = fma(n, x.constant(2.0 * kLn2), square) + fma(n, x.constant(2.0 * kLn2Lo), square_lo);
  const S tail = horner(r, 2.1601218e-05, -0.00026154326, 0.0026042648, -0.020833144, 0.124999985);
  const S e = fma(tail, r, x.constant(-0.5)) * r;
  const S p = horner(a, 0.0051011625, 0.050500553, 0.22819208, 0.54674226, 0.625);
  const S q = horner(a, 0.012786564, 0.1265944, 0.5845874, 1.4996285, 2.0908406, 1.25);
  const S quotient = a * p * inverse(q);
  const S exponent = shl(bitcast(rounded, DType::I32), i32(x, 23));
  const S below = scaled_down_f32(fma(e, quotient, quotient), exponent,
                                  gt(a, x.constant(kGreatestNormalGeluF32)));
  const S zero = x.constant(0.0);
  return select(gt(x, zero), x, x * zero) - below;
}

// ---------------------------------------------------------------------------------------------
// f16 and bf16: bodies in f32 whose results round to the correctly rounded ones
// ---------------------------------------------------------------------------------------------

// The argument is a 16-bit number widened to f32. The result is an f32 that rounds, to nearest
// even, to the correctly rounded number of `dtype`; all 65536 inputs of each type are tested. Low
// parts, which bodies for f32 have, are not necessary for so few bits. If a result should lie
// beside a tie, but is computed as the tie or on its other side, it is moved by ulps of f32:
// `nudged` lists such inputs.

/// An argument (or its magnitude, if the function is odd or even), and the number that is added to
/// the bits of its result.
struct Nudge {
  float input;
  int32_t ulps;
};

/// `result` with the corrections of f16; bf16 needs none.
template <class S>
S nudged(const S& input, const S& result, DType dtype, std::initializer_list<Nudge> nudges) {
  if (dtype != DType::F16) return result;
  S change = i32(input, 0);
  for (const Nudge& nudge : nudges) {
    const S hit = eq(input, input.constant(nudge.input));
    change = select(hit, i32(input, static_cast<uint32_t>(nudge.ulps)), change);
  }
  return bitcast(bitcast(result, DType::I32) + change, DType::F32);
}

// bf16 has so few bits that the machine's approximations are good enough. h^2 with h near 2^(x/2)
// covers the whole range, including subnormal numbers, which 2^x itself would not. The errors of
// the approximations and of the polynomials are too small to reach a tie. Some constants differ
// slightly from the number that they stand for (log2(e) / 2, 1/4, 1), which moves single results to
// the right side of a tie.

inline constexpr double kHalfLog2E = 0.72134751;

/// y^2 / (y^2 + 1), which is sigmoid(x) for y = e^(x/2). `scaled` is y, or y times a factor.
template <class S>
S sigmoid_of_root_bf16(const S& y, const S& scaled) {
  return scaled * approx_inverse(fma(y, y, y.constant(1.0))) * y;
}

template <class S>
S exp_bf16(const S& x) {
  const S h = approx_exp2(fma(x, x.constant(kHalfLog2E), x.constant(2.489e-6)));
  return h * x.constant(0.9999971) * h;
}

template <class S>
S exp2_bf16(const S& x) {
  const S h = approx_exp2(x * x.constant(0.5));
  return h * h;
}

/// Near 0, exact results lie beside ties. A straight line with a slightly lower slope is on the
/// same side of them.
template <class S>
S sigmoid_bf16(const S& x) {
  const S bounded = min(x, x.constant(30.0));
  const S y = approx_exp2(fma(bounded, x.constant(kHalfLog2E), x.constant(-0x1p-21)));
  const S line = fma(x, x.constant(0.25 - 0x1p-14), x.constant(0.5));
  return select(lt(abs(x), x.constant(0.02)), line, sigmoid_of_root_bf16(y, y));
}

template <class S>
S silu_bf16(const S& x) {
  const S y = approx_exp2(min(x, x.constant(16.0)) * x.constant(0.7213474));
  const S line = fma(x, x.constant(0.25 - 0x1p-14), x.constant(0.5));
  const S curve = sigmoid_of_root_bf16(y, y * x.constant(1.0 - 0x1p-22));
  return select(lt(abs(x), x.constant(0.0115)), line, curve) * x;
}

template <class S>
S gelu_tanh_bf16(const S& x) {
  const S t = fma(x * x, x.constant(0.05147162), x.constant(1.151104)) * x;
  const S y = approx_exp2(min(t, x.constant(12.0)));
  return y * approx_inverse(fma(y, y, x.constant(1.0))) * x * y;
}

/// x P(X <= x), where P(X <= -a) = e^(-a^2/2) p(a) / q(a).
template <class S>
S gelu_bf16(const S& x) {
  const S one = x.constant(1.0);
  const S a = min(abs(x), x.constant(13.5));
  const S h = approx_exp2(x * x * x.constant(-0.36067376));
  const S p = horner(a, 0.037099604, 0.20508765, 0.5);
  const S q = horner(a, 8.5913336e-05, 0.090670384, 0.5386004, 1.2079659, 1.0);
  const S below = p * approx_inverse(q) * h * h;
  return select(lt(x, x.constant(0.0)), below, one - below) * x;
}

/// max(x, 0) + log(1 + u), u = e^-|x|.
template <class S>
S softplus_bf16(const S& x) {
  const S h = approx_exp2(abs(x) * x.constant(-kHalfLog2E));
  const S q =
      horner(h * h, -0.02613792, 0.1087258, -0.21907292, 0.32988536, -0.5002488, 0.99999547);
  return fma(h * q, h, max(x, x.constant(0.0)));
}

template <class S>
S tanh_bf16(const S& x) {
  const S limit = x.constant(3.6);
  const S y = max(min(x, limit), -limit);
  const S z = y * y;
  const S p = horner(z, 0.00084136083, 0.106596716, 0.99996644);
  const S q = horner(z, 0.0142692225, 0.43970484, 1.0);
  return p * y * approx_inverse(q);
}

template <class S>
S erf_bf16(const S& x) {
  const S limit = x.constant(2.25);
  const S y = max(min(x, limit), -limit);
  const S q = horner(y * y, 2.1614766e-05, -0.00045130905, 0.004306505, -0.025855582, 0.11247565,
                     -0.3761297, 1.128379);
  return q * y;
}

/// erfc(a) = e^(-a^2) p(a) / q(a).
template <class S>
S erfc_bf16(const S& x) {
  const S a = min(abs(x), x.constant(9.6));
  const S h = approx_exp2(x * x * x.constant(-kHalfLog2E));
  const S p = horner(a, 0.2320412, 0.7584452, 1.0);
  const S q = horner(a, 0.41052073, 1.3575706, 1.8873086, 1.0);
  const S positive = p * approx_inverse(q) * h * h;
  return select(lt(x, x.constant(0.0)), x.constant(2.0) - positive, positive);
}

template <class S>
S silu_16(const S& x, DType) {
  return silu_bf16(x);
}

template <class S>
S gelu_16(const S& x, DType) {
  return gelu_bf16(x);
}

template <class S>
S gelu_tanh_16(const S& x, DType) {
  return gelu_tanh_bf16(x);
}

template <class S>
S softplus_16(const S& x, DType) {
  return softplus_bf16(x);
}

/// 2^-30 is 0 in f16, and 2^30 is infinite.
template <class S>
S bounded_f16(const S& x) {
  const S low = max(x, x.constant(-30.0));
  return min(low, x.constant(30.0));
}

template <class S>
S exp_16(const S& x, DType dtype) {
  if (dtype == DType::BF16) return exp_bf16(x);
  const Power<S> power = exp_parts_f32(bounded_f16(x));
  const S result = power.p * power_of_two_f32(power.rounded);
  return nudged(x, result, dtype, {{0x1.de4p-8f, -1}, {0x1.73cp-6f, -1}});
}

template <class S>
S exp2_16(const S& x, DType dtype) {
  if (dtype == DType::BF16) return exp2_bf16(x);
  const Power<S> power = exp2_parts_f32(bounded_f16(x));
  const S result = power.p * power_of_two_f32(power.rounded);
  return nudged(x, result, dtype, {{0x1.714p-11f, 1}});
}

template <class S>
S expm1_16(const S& x, DType dtype) {
  const S low = max(x, x.constant(-18.0));
  const S y = min(low, x.constant(89.0));
  const S rounded = fma(y, x.constant(kLog2E), x.constant(kRoundF32));
  const S n = rounded - x.constant(kRoundF32);
  S r = fma(n, x.constant(-kLn2), y);
  r = fma(n, x.constant(-kLn2Lo), r);
  const S e = fma(r * r, exp_tail_f32(r), r);
  const S exponent = shl(bitcast(rounded, DType::I32), i32(x, 23));
  const S w = bitcast(exponent + i32(x, kOneF32 - 0x800000u), DType::F32);
  const S half = fma(e, w, w - x.constant(0.5));
  const S result = with_sign_f32(half + half, x);
  return nudged(x, result, dtype, {{0x1.6ap-11f, 1}});
}

template <class S>
S log_16(const S& x, DType dtype) {
  return nudged(x, log_f32(x), dtype, {{0x1.5ep-8f, -1}});
}

template <class S>
S log2_16(const S& x, DType) {
  return log2_f32(x);
}

template <class S>
S log1p_16(const S& x, DType dtype) {
  return nudged(x, log1p_f32(x), dtype, {{0x1.80cp-8f, 1}, {-0x1.7f4p-8f, -1}});
}

template <class S>
S tanh_16(const S& x, DType dtype) {
  if (dtype == DType::BF16) return tanh_bf16(x);
  const S a = min(abs(x), x.constant(9.05));
  const S rounded = fma(a, x.constant(2.0 * kLog2E), x.constant(kRoundF32));
  const S n = rounded - x.constant(kRoundF32);
  S h = fma(n, x.constant(-0.5 * kLn2), a);
  h = fma(n, x.constant(-0.5 * kLn2Lo), h);
  const S z = h * h;
  const S t = fma(h * z, horner(z, -0.052715898, 0.13331144, -0.33333322), h);
  const S power = power_of_two_f32(rounded);
  const S plus = power + x.constant(1.0);
  const S minus = power - x.constant(1.0);
  const S result = fma(t, plus, minus) * inverse(fma(t, minus, plus));
  return with_sign_f32(result, x);
}

template <class S>
S sigmoid_16(const S& x, DType dtype) {
  if (dtype == DType::BF16) return sigmoid_bf16(x);
  const S a = min(abs(x), x.constant(30.0));
  const S rounded = fma(a, x.constant(-kLog2E), x.constant(kRoundF32));
  const S minus_n = rounded - x.constant(kRoundF32);
  S r = fma(minus_n, x.constant(kLn2), a);
  r = fma(minus_n, x.constant(kLn2Lo), r);
  const S one = x.constant(1.0);
  const S p = one + fma(r * r, exp_tail_f32(r), r);
  const S w = power_of_two_f32(rounded);
  const S negative = inverse(p + w) * w;
  const S result = select(lt(x, x.constant(0.0)), negative, one - negative);
  return nudged(x, result, dtype,
                {{0x1.8p-9f, -1},
                 {0x1.cp-8f, -1},
                 {0x1.6p-7f, -1},
                 {-0x1.ep-8f, 1},
                 {-0x1.5p-7f, 1},
                 {-0x1.7p-7f, 1},
                 {-0x1.4fcp-3f, -1}});
}

template <class S>
S erf_16(const S& x, DType dtype) {
  if (dtype == DType::BF16) return erf_bf16(x);
  return nudged(abs(x), erf_f32(x), dtype, {{0x1.848p-10f, -1}});
}

/// The square of a 16-bit number is exact in f32.
template <class S>
S erfc_16(const S& x, DType dtype) {
  if (dtype == DType::BF16) return erfc_bf16(x);
  const S one = x.constant(1.0);
  const S a = min(abs(x), x.constant(5.0));
  const S square = a * a;
  const S rounded = fma(square, x.constant(-kLog2E), x.constant(kRoundF32));
  const S n = rounded - x.constant(kRoundF32);
  S r = fma(n, x.constant(-kLn2), -square);
  r = fma(n, x.constant(-kLn2Lo), r);
  const S p = one + fma(r * r, exp_tail_f32(r), r);
  const S y = inverse(a + x.constant(3.0));
  const S h = horner(y - x.constant(0.1875), 3269.8997, -190.26918, -946.59174, -190.55179,
                     193.37178, 175.99776, 80.85937, 25.861547, 6.2788258, 1.1942899);
  const S positive = p * (y * h) * power_of_two_f32(rounded);
  const S result = select(lt(x, x.constant(0.0)), x.constant(2.0) - positive, positive);
  return nudged(x, result, dtype, {{0x1.424p-1f, 1}, {-0x1.c5cp-12f, 3}});
}

/// The argument is below 65536 and has few bits, so three parts of pi/2 are enough to reduce it.
template <class S>
S sin_ahead_f16(const S& x, uint32_t turns) {
  const S a = abs(x);
  const S rounded = fma(a, x.constant(0.63661977236758134308), x.constant(kRoundF32));
  const S n = rounded - x.constant(kRoundF32);
  S r = fma(n, x.constant(-0x1.921fb6p+0), a);
  r = fma(n, x.constant(0x1.777a5cp-25), r);
  r = fma(n, x.constant(0x1.ee59da00p-50), r);
  const S quadrant = bitcast(rounded, DType::I32) + i32(x, turns);
  const S z = r * r;
  const S sine = fma(r * z, horner(z, -0.00019313702, 0.008330249, -0.16666615), r);
  const S cosine = horner(z, 2.4201614e-05, -0.0013884697, 0.041666575, -0.5, 1.0);
  const S odd = ne(bit_and(quadrant, i32(x, 1)), i32(x, 0));
  const S sign = shl(bit_and(quadrant, i32(x, 2)), i32(x, 30));
  return bitcast(bit_xor(bitcast(select(odd, cosine, sine), DType::I32), sign), DType::F32);
}

template <class S>
S sin_16(const S& x, DType dtype) {
  if (dtype != DType::F16) return sin_f32(x);
  const S sign = bit_and(bitcast(x, DType::I32), i32(x, 0x80000000u));
  const S result = bitcast(bit_xor(bitcast(sin_ahead_f16(x, 0), DType::I32), sign), DType::F32);
  return nudged(abs(x), result, dtype, {{0x1.accp-3f, 1}, {0x1.2cp+8f, -1}});
}

template <class S>
S cos_16(const S& x, DType dtype) {
  if (dtype != DType::F16) return cos_f32(x);
  return nudged(abs(x), sin_ahead_f16(x, 1), dtype, {{0x1.dfp-5f, 1}});
}

/// A tie between 16-bit numbers has at most 12 bits, and the power in f64 has a relative error of
/// at most 2^-45.6. Rounded to 44 bits, a power that should be a tie is the tie. Then the result is
/// rounded once.
template <class S>
S pow_16(const S& x, const S& y, DType dtype) {
  const S near = bitcast(wide_pow(x, y), DType::I64) + i64(x, 0x100);
  const S power = bitcast(bit_and(near, i64(x, ~uint64_t{0x1ff})), DType::F64);
  return convert(convert(power, dtype), DType::F32);
}

// ---------------------------------------------------------------------------------------------
// The rows
// ---------------------------------------------------------------------------------------------

#define BRAZE_MATH_ROW(name)                                        \
  template <class S>                                                \
  S name(const S& x) {                                              \
    return x.dtype() == DType::F64 ? name##_f64(x) : name##_f32(x); \
  }
BRAZE_MATH_ROW(exp)
BRAZE_MATH_ROW(exp2)
BRAZE_MATH_ROW(expm1)
BRAZE_MATH_ROW(log)
BRAZE_MATH_ROW(log2)
BRAZE_MATH_ROW(log1p)
BRAZE_MATH_ROW(tanh)
BRAZE_MATH_ROW(sigmoid)
BRAZE_MATH_ROW(erf)
BRAZE_MATH_ROW(erfc)
BRAZE_MATH_ROW(sin)
BRAZE_MATH_ROW(cos)
#undef BRAZE_MATH_ROW

template <class S>
S pow(const S& x, const S& y) {
  return x.dtype() == DType::F64 ? pow_f64(x, y) : pow_f32(x, y);
}

}  // namespace braze::math
