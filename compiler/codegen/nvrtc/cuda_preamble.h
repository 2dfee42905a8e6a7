// cuda_preamble.h — the functions at the beginning of every CUDA C++ kernel.
//
// They implement the machine rows of ir/ops/machine_semantics.h for which C++ has no operator with
// exactly that meaning. They include no header, because compiling a header would take longer than
// compiling the kernel.
#pragma once

namespace braze::codegen {

// The types, and macros that make the functions of integers. SIGNED or UNSIGNED is used once for
// each dtype. Its arguments are the type, an unsigned type that is at least as wide, whose
// arithmetic wraps, and the width.
inline constexpr const char* kCudaTypes = R"(typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
#define F static __device__ __forceinline__
struct alignas(128) TensorMap { u8 bytes[128]; };
namespace b {

F u32 pack(u16 a, u16 b) { return a | u32(b) << 16; }
F u32 bits(float x) { return __float_as_uint(x); }
F float real(u32 x) { return __uint_as_float(x); }
F u64 bits(double x) { return __double_as_longlong(x); }
F double real(u64 x) { return __longlong_as_double(x); }

// The bits of a value in an integer register.
F u32 word32(float x) { return __float_as_uint(x); }
F u32 word32(u32 x) { return x; }
F u32 word32(int x) { return x; }
F u32 word32(bool x) { return x; }
F u64 word64(u64 x) { return x; }
F u64 word64(i64 x) { return x; }

// For x of at most 2^31 (constant_division.h).
template <u32 kMultiplier, int kShift> F u32 quotient(u32 x) { return __umulhi(x, kMultiplier) >> kShift; }
template <u32 kMultiplier, int kShift> F u32 rest(u32 x, u32 d) { return x - quotient<kMultiplier, kShift>(x) * d; }

F i64 floordiv(i64 a, i64 b) { i64 q = a / b; return q - (a - q * b < 0); }
F i64 mod(i64 a, i64 b) { i64 r = a % b; return r < 0 ? r + b : r; }

#define INTEGER(T, U, W) \
F T wrap_add(T x, T y) { return T(U(x) + U(y)); } \
F T wrap_sub(T x, T y) { return T(U(x) - U(y)); } \
F T wrap_mul(T x, T y) { return T(U(x) * U(y)); } \
F T minimum(T x, T y) { return x < y ? x : y; } \
F T maximum(T x, T y) { return x > y ? x : y; } \
F T shift_left(T x, T y) { return U(y) > W - 1 ? T(0) : T(U(x) << y); }
#define SIGNED(T, U, W) INTEGER(T, U, W) \
F T divide(T x, T y) { return y == 0 ? T(0) : y == T(-1) ? wrap_sub(T(0), x) : T(x / y); } \
F T remainder(T x, T y) { return y == 0 ? x : y == T(-1) ? T(0) : T(x % y); } \
F T shift_right(T x, T y) { return T(x >> (U(y) > W - 1 ? T(W - 1) : y)); }
#define UNSIGNED(T, U, W) INTEGER(T, U, W) \
F T divide(T x, T y) { return y == 0 ? T(0) : T(x / y); } \
F T remainder(T x, T y) { return y == 0 ? x : T(x % y); } \
F T shift_right(T x, T y) { return U(y) > W - 1 ? T(0) : T(x >> y); }
)";

inline constexpr const char* kCudaFunctions =
    R"(F float remainder(float x, float y) { return fmodf(x, y); }
F double remainder(double x, double y) { return fmod(x, y); }

F float minimum(float x, float y) { float r; asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y)); return r; }
F float maximum(float x, float y) { float r; asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y)); return r; }
F double minimum(double x, double y) { double r; asm("min.f64 %0, %1, %2;" : "=d"(r) : "d"(x), "d"(y)); return x != x || y != y ? real(0x7ff8000000000000ull) : r; }
F double maximum(double x, double y) { double r; asm("max.f64 %0, %1, %2;" : "=d"(r) : "d"(x), "d"(y)); return x != x || y != y ? real(0x7ff8000000000000ull) : r; }

F float approx_inverse(float x) { float r; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }
F float approx_exp2(float x) { float r; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }
// The remainder of the approximation is exact, so one Newton step gives the correctly rounded
// result.
F float inverse(float x) { float y = approx_inverse(x); return __fmaf_rn(y, __fmaf_rn(-x, y, 1.0f), y); }

F float f16_to_f32(u16 x) { float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x)); return r; }
F float bf16_to_f32(u16 x) { return real(u32(x) << 16); }
F u32 f32_to_f16x2(float a, float b) { u32 r; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a)); return r; }
F u32 f32_to_bf16x2(float a, float b) { u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a)); return r; }
F u16 f32_to_f16(float x) { return f32_to_f16x2(x, 0.0f); }
F u16 f32_to_bf16(float x) { return f32_to_bf16x2(x, 0.0f); }
// Shifted into the bits of an f32, an f8e4m3 is 2^120 times too small. An f8e5m2 is the upper half
// of an f16.
F float f8e4m3_to_f32(u8 x) {
  u32 m = x & 0x7f;
  return real(bits(m == 0x7f ? real(0x7fffffffu) : real(m << 20) * 0x1p120f) | u32(x & 0x80) << 24);
}
F float f8e5m2_to_f32(u8 x) { return f16_to_f32(u16(x) << 8); }
// Rounds to `f` fraction bits; beyond the greatest number the result is `most`. Subnormal results
// come from a sum with a number whose last place is that of the subnormal numbers.
F u32 narrow8(u32 m, u32 f, u32 bias, u32 most) {
  u32 s = 23 - f, magic = (151 - bias - f) << 23;
  u32 code = m < (128 - bias) << 23 ? bits(real(m) + real(magic)) - magic
             : ((m + (m >> s & 1) + (1u << (s - 1)) - 1) >> s) - ((127 - bias) << f);
  return code < most ? code : most;
}
F u8 f32_to_f8e4m3(float x) { return narrow8(bits(x) & 0x7fffffff, 3, 7, 0x7f) | (bits(x) >> 24 & 0x80); }
F u8 f32_to_f8e5m2(float x) { return (x != x ? 0x7e : narrow8(bits(x) & 0x7fffffff, 2, 15, 0x7c)) | (bits(x) >> 24 & 0x80); }
// Rounds to odd: rounding the result once more equals rounding x once.
F float round_to_odd(double x) {
  float n = __double2float_rn(x);
  double back = n;
  return real((bits(n) - (fabs(back) > fabs(x))) | (back < x || back > x));
}
// A double that rounds to 16 bits in the same way as the integer: if any bit is set that the double
// cannot hold, its last place is set.
F double sticky(i64 x) {
  i64 cut = x & ~0x7ffll;
  u64 magnitude = x < 0 ? 0 - u64(x) : u64(x);
  return double(magnitude < 1ull << 53 ? x : x & 0x7ff ? cut | 0x400 : cut);
}
F double sticky(u64 x) { return double(x >> 53 != 0 && x & 0x7ff ? (x & ~0x7ffull) | 0x800 : x); }
F int to_i32(float x) { return __float2int_rz(x); }
F u32 to_u32(float x) { return __float2uint_rz(x); }
F i64 to_i64(float x) { return x != x ? 0 : __float2ll_rz(x); }
F int to_i32(double x) { return x != x ? 0 : __double2int_rz(x); }
F u32 to_u32(double x) { return x != x ? 0 : __double2uint_rz(x); }
F i64 to_i64(double x) { return x != x ? 0 : __double2ll_rz(x); }
F u64 to_u64(float x) { return x != x ? 0 : __float2ull_rz(x); }
F u64 to_u64(double x) { return x != x ? 0 : __double2ull_rz(x); }
#define SHORT(T, least, most) \
F T to_##T(float x) { return T(minimum(maximum(to_i32(x), least), most)); } \
F T to_##T(double x) { return T(minimum(maximum(to_i32(x), least), most)); }
SHORT(i8, -128, 127)
SHORT(u8, 0, 255)
SHORT(i16, -32768, 32767)
SHORT(u16, 0, 65535)
}  // namespace b

)";

}  // namespace braze::codegen
