// lanes.h: eight values at once, the scalar on which the math bodies run natively.
//
// The machine rows of math_bodies.h for GCC and clang vectors on x86-64-v3. The dtype is a run-time
// field that inlining turns into a constant; 32-bit types use `w`, 64-bit types use `q`, and a bool
// is the mask (0 or -1) in `w`.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "braze/dtype.h"

namespace braze::test {

inline constexpr int kLanes = 8;

using I32x8 = int32_t __attribute__((vector_size(32)));
using U32x8 = uint32_t __attribute__((vector_size(32)));
using F32x8 = float __attribute__((vector_size(32)));
using I64x8 = int64_t __attribute__((vector_size(64)));
using U64x8 = uint64_t __attribute__((vector_size(64)));
using F64x8 = double __attribute__((vector_size(64)));

#define BRAZE_LANES [[gnu::always_inline]] inline

struct Lanes {
  DType type = DType::F32;
  I32x8 w{};
  I64x8 q{};

  DType dtype() const { return type; }
  BRAZE_LANES Lanes constant(double value) const;
  BRAZE_LANES Lanes constant_bits(DType dtype, uint64_t bits) const;
};

BRAZE_LANES Lanes of(F32x8 v) { return {DType::F32, (I32x8)v, I64x8{}}; }
BRAZE_LANES Lanes of(F64x8 v) { return {DType::F64, I32x8{}, (I64x8)v}; }
BRAZE_LANES Lanes of(DType dtype, I32x8 v) { return {dtype, v, I64x8{}}; }
BRAZE_LANES Lanes of(I64x8 v) { return {DType::I64, I32x8{}, v}; }
BRAZE_LANES F32x8 f32(const Lanes& x) { return (F32x8)x.w; }
BRAZE_LANES U32x8 u32(const Lanes& x) { return (U32x8)x.w; }
BRAZE_LANES F64x8 f64(const Lanes& x) { return (F64x8)x.q; }
BRAZE_LANES bool is_64_bit(DType dtype) { return dtype == DType::F64 || dtype == DType::I64; }

BRAZE_LANES Lanes Lanes::constant(double value) const {
  if (type == DType::F64) return of(value - F64x8{});
  return of(static_cast<float>(value) - F32x8{});
}

BRAZE_LANES Lanes Lanes::constant_bits(DType dtype, uint64_t bits) const {
  if (is_64_bit(dtype)) return {dtype, I32x8{}, static_cast<int64_t>(bits) - I64x8{}};
  return {dtype, static_cast<int32_t>(bits) - I32x8{}, I64x8{}};
}

/// A function of each half of a 512-bit vector.
template <class Function, class... V>
BRAZE_LANES F64x8 by_halves(Function function, V... v) {
  union Halves {
    F64x8 whole;
    __m256d half[2];
  };
  Halves result;
  result.half[0] = function(Halves{v}.half[0]...);
  result.half[1] = function(Halves{v}.half[1]...);
  return result.whole;
}

#define BRAZE_LANES_ARITHMETIC(op)                                \
  BRAZE_LANES Lanes operator op(const Lanes& a, const Lanes& b) { \
    switch (a.type) {                                             \
      case DType::F32:                                            \
        return of(f32(a) op f32(b));                              \
      case DType::F64:                                            \
        return of(f64(a) op f64(b));                              \
      case DType::I64:                                            \
        return of(I64x8((U64x8)a.q op(U64x8) b.q));               \
      default:                                                    \
        return of(a.type, I32x8(u32(a) op u32(b)));               \
    }                                                             \
  }
BRAZE_LANES_ARITHMETIC(+)
BRAZE_LANES_ARITHMETIC(-)
BRAZE_LANES_ARITHMETIC(*)

BRAZE_LANES Lanes operator/(const Lanes& a, const Lanes& b) {
  if (a.type == DType::F64) return of(f64(a) / f64(b));
  return of(f32(a) / f32(b));
}

BRAZE_LANES Lanes inverse(const Lanes& a) { return of(F32x8(1 / f32(a))); }

/// The approximate rows, off by these relative errors where they may be.
inline thread_local double approx_inverse_error = 0, approx_exp2_error = 0;

BRAZE_LANES Lanes approx_inverse(const Lanes& a) {
  F32x8 result;
  for (int i = 0; i < kLanes; ++i) {
    const float x = f32(a)[i];
    int exponent;
    const bool exact = std::abs(std::frexp(x, &exponent)) == 0.5f;
    result[i] = static_cast<float>((1 / double{x}) * (1 + (exact ? 0 : approx_inverse_error)));
  }
  return of(result);
}

BRAZE_LANES Lanes approx_exp2(const Lanes& a) {
  F32x8 result;
  for (int i = 0; i < kLanes; ++i) {
    const double x = f32(a)[i], error = std::abs(x) < 0x1p-25 ? 0 : approx_exp2_error;
    const double y = std::exp2(x);
    result[i] = static_cast<float>(y < 0x1p-126 ? 0 : y * (1 + error));
  }
  return of(result);
}

BRAZE_LANES Lanes operator-(const Lanes& a) {
  if (a.type == DType::F64) return of(-f64(a));
  if (a.type == DType::F32) return of(-f32(a));
  if (a.type == DType::I64) return of(I64x8(-(U64x8)a.q));
  return of(a.type, I32x8(-u32(a)));
}

BRAZE_LANES Lanes fma(const Lanes& a, const Lanes& b, const Lanes& c) {
  if (a.type == DType::F64) {
    return of(by_halves([](auto x, auto y, auto z) { return _mm256_fmadd_pd(x, y, z); }, f64(a),
                        f64(b), f64(c)));
  }
  return of((F32x8)_mm256_fmadd_ps((__m256)a.w, (__m256)b.w, (__m256)c.w));
}

/// `value` rounded once to a 16-bit type, as a float.
inline float rounded_to_half(double value, DType dtype) {
  const int bits = dtype == DType::BF16 ? 8 : 11, least = dtype == DType::BF16 ? -133 : -24;
  uint64_t pattern;
  std::memcpy(&pattern, &value, 8);
  const int exponent = static_cast<int>(pattern >> 52 & 0x7ff) - 1023;
  if (exponent == 1024) return static_cast<float>(value);
  // The sum with this number has the 16-bit type's ulp at `value`.
  const uint64_t shift = static_cast<uint64_t>(std::max(exponent + 1 - bits, least) + 52 + 1023);
  double large;
  pattern = shift << 52 | uint64_t{1} << 51;
  std::memcpy(&large, &pattern, 8);
  const double rounded = (value + large) - large, top = dtype == DType::BF16 ? 0x1p128 : 0x1p16;
  return static_cast<float>(std::copysign(std::abs(rounded) < top ? rounded : INFINITY, value));
}

BRAZE_LANES Lanes sqrt(const Lanes& a) {
  if (a.type == DType::F64) {
    return of(by_halves([](auto x) { return _mm256_sqrt_pd(x); }, f64(a)));
  }
  return of((F32x8)_mm256_sqrt_ps((__m256)a.w));
}

#define BRAZE_LANES_ROUND(name, mode)                                                    \
  BRAZE_LANES Lanes name(const Lanes& a) {                                               \
    if (a.type == DType::F64)                                                            \
      return of(by_halves([](auto x) { return _mm256_round_pd(x, mode | 8); }, f64(a))); \
    return of((F32x8)_mm256_round_ps((__m256)a.w, mode | 8));                            \
  }
BRAZE_LANES_ROUND(round_even, 0)
BRAZE_LANES_ROUND(floor, 1)
BRAZE_LANES_ROUND(ceil, 2)
BRAZE_LANES_ROUND(trunc, 3)

BRAZE_LANES Lanes abs(const Lanes& a) {
  if (a.type == DType::F64) return {DType::F64, I32x8{}, a.q & INT64_MAX};
  return of(DType::F32, a.w & INT32_MAX);
}

#define BRAZE_LANES_COMPARE(name, op)                                             \
  BRAZE_LANES Lanes name(const Lanes& a, const Lanes& b) {                        \
    switch (a.type) {                                                             \
      case DType::F32:                                                            \
        return of(DType::Bool, f32(a) op f32(b));                                 \
      case DType::F64:                                                            \
        return of(DType::Bool, __builtin_convertvector(f64(a) op f64(b), I32x8)); \
      case DType::I64:                                                            \
        return of(DType::Bool, __builtin_convertvector(a.q op b.q, I32x8));       \
      case DType::U32:                                                            \
        return of(DType::Bool, I32x8(u32(a) op u32(b)));                          \
      default:                                                                    \
        return of(DType::Bool, a.w op b.w);                                       \
    }                                                                             \
  }
BRAZE_LANES_COMPARE(lt, <)
BRAZE_LANES_COMPARE(le, <=)
BRAZE_LANES_COMPARE(gt, >)
BRAZE_LANES_COMPARE(ge, >=)
BRAZE_LANES_COMPARE(eq, ==)
BRAZE_LANES_COMPARE(ne, !=)

BRAZE_LANES Lanes is_nan(const Lanes& a) { return ne(a, a); }

BRAZE_LANES Lanes select(const Lanes& c, const Lanes& a, const Lanes& b) {
  if (is_64_bit(a.type)) {
    const I64x8 mask = __builtin_convertvector(c.w, I64x8);
    return {a.type, I32x8{}, (a.q & mask) | (b.q & ~mask)};
  }
  return of(a.type, (a.w & c.w) | (b.w & ~c.w));
}

BRAZE_LANES Lanes min(const Lanes& a, const Lanes& b) {
  return select(is_nan(a), a, select(lt(b, a), b, select(is_nan(b), b, a)));
}

BRAZE_LANES Lanes max(const Lanes& a, const Lanes& b) {
  return select(is_nan(a), a, select(gt(b, a), b, select(is_nan(b), b, a)));
}

#define BRAZE_LANES_BITS(name, op)                         \
  BRAZE_LANES Lanes name(const Lanes& a, const Lanes& b) { \
    return {a.type, a.w op b.w, a.q op b.q};               \
  }
BRAZE_LANES_BITS(bit_and, &)
BRAZE_LANES_BITS(bit_or, |)
BRAZE_LANES_BITS(bit_xor, ^)
BRAZE_LANES_BITS(logical_and, &)
BRAZE_LANES_BITS(logical_or, |)

BRAZE_LANES Lanes bit_not(const Lanes& a) { return {a.type, ~a.w, ~a.q}; }
BRAZE_LANES Lanes logical_not(const Lanes& a) { return bit_not(a); }

BRAZE_LANES Lanes shl(const Lanes& a, const Lanes& b) {
  if (a.type == DType::I64) return of(I64x8((U64x8)a.q << (U64x8)b.q));
  return of(a.type, I32x8(u32(a) << u32(b)));
}

/// Arithmetic, except on u32.
BRAZE_LANES Lanes shr(const Lanes& a, const Lanes& b) {
  if (a.type == DType::I64) return of(a.q >> b.q);
  if (a.type == DType::U32) return of(a.type, I32x8(u32(a) >> u32(b)));
  return of(a.type, a.w >> b.w);
}

BRAZE_LANES Lanes bitcast(const Lanes& a, DType to) { return {to, a.w, a.q}; }

/// Float to integer truncates and saturates, NaN gives 0; between integers it wraps.
BRAZE_LANES Lanes convert(const Lanes& a, DType to) {
  const auto lanes = [&](auto function) {
    Lanes result{to, I32x8{}, I64x8{}};
    for (int i = 0; i < kLanes; ++i) function(result, i);
    return result;
  };
  // A 16-bit number stays in an f32, as which it counts again at once.
  if (is_half(to) && a.type == DType::F64) {
    F32x8 v;
    for (int i = 0; i < kLanes; ++i) v[i] = rounded_to_half(f64(a)[i], to);
    return of(to, (I32x8)v);
  }
  if (is_half(a.type) && to == DType::F32) return of(to, a.w);
  const bool from_float = a.type == DType::F32 || a.type == DType::F64;
  if (a.type == DType::F32 && to == DType::I32) {
    const F32x8 v = f32(a);
    I32x8 r = (I32x8)_mm256_cvttps_epi32((__m256)v);
    r = v >= 0x1p31f ? INT32_MAX - I32x8{} : r;
    return of(to, v == v ? r : I32x8{});
  }
  if (a.type == DType::I32 && to == DType::F32) return of(__builtin_convertvector(a.w, F32x8));
  if (a.type == DType::U32 && to == DType::F32) return of(__builtin_convertvector(u32(a), F32x8));
  if (a.type == DType::F32 && to == DType::F64) return of(__builtin_convertvector(f32(a), F64x8));
  if (a.type == DType::F64 && to == DType::F32) return of(__builtin_convertvector(f64(a), F32x8));
  if (a.type == DType::I64 && to == DType::F64) {
    const I64x8 v = a.q;
    return lanes([&](Lanes& r, int i) {
      double d = v[i];
      std::memcpy((char*)&r.q + 8 * i, &d, 8);
    });
  }
  if (from_float && to == DType::I64) {
    const F64x8 v = a.type == DType::F64 ? f64(a) : __builtin_convertvector(f32(a), F64x8);
    return lanes([&](Lanes& r, int i) {
      r.q[i] = v[i] != v[i]      ? 0
               : v[i] >= 0x1p63  ? INT64_MAX
               : v[i] <= -0x1p63 ? INT64_MIN
                                 : static_cast<int64_t>(v[i]);
    });
  }
  if (a.type == DType::F64 && to == DType::I32) {
    const F64x8 v = f64(a);
    return lanes([&](Lanes& r, int i) {
      r.w[i] = v[i] != v[i]      ? 0
               : v[i] >= 0x1p31  ? INT32_MAX
               : v[i] <= -0x1p31 ? INT32_MIN
                                 : static_cast<int32_t>(v[i]);
    });
  }
  if (a.type == DType::I32 && to == DType::F64) return of(__builtin_convertvector(a.w, F64x8));
  if (a.type == DType::U32 && to == DType::F64) return of(__builtin_convertvector(u32(a), F64x8));
  if (a.type == DType::I32 && to == DType::I64) return of(__builtin_convertvector(a.w, I64x8));
  if (a.type == DType::U32 && to == DType::I64) return of(__builtin_convertvector(u32(a), I64x8));
  if (a.type == DType::I64 && !is_64_bit(to)) return of(to, __builtin_convertvector(a.q, I32x8));
  __builtin_trap();
}

}  // namespace braze::test
