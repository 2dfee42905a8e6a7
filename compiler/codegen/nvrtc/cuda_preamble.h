// cuda_preamble.h — the functions that every CUDA C++ kernel begins with.
//
// They give the machine rows of ir/ops/machine_semantics.h where C++ has no operator with exactly
// that meaning. No header is included, as the front end would take longer than the kernel.
#pragma once

namespace braze::codegen {

inline constexpr const char* kCudaPreamble = R"(typedef unsigned char u8;
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

// What goes into a register for bits.
F u32 word32(float x) { return __float_as_uint(x); }
F u32 word32(u32 x) { return x; }
F u32 word32(int x) { return x; }
F u32 word32(bool x) { return x; }
F u64 word64(u64 x) { return x; }
F u64 word64(i64 x) { return x; }

F i64 floordiv(i64 a, i64 b) { i64 q = a / b; return q - (a - q * b < 0); }
F i64 mod(i64 a, i64 b) { i64 r = a % b; return r < 0 ? r + b : r; }

F int wrap_add(int x, int y) { return u32(x) + u32(y); }
F int wrap_sub(int x, int y) { return u32(x) - u32(y); }
F int wrap_mul(int x, int y) { return u32(x) * u32(y); }
F u32 wrap_add(u32 x, u32 y) { return x + y; }
F u32 wrap_sub(u32 x, u32 y) { return x - y; }
F u32 wrap_mul(u32 x, u32 y) { return x * y; }
F i64 wrap_add(i64 x, i64 y) { return u64(x) + u64(y); }
F i64 wrap_sub(i64 x, i64 y) { return u64(x) - u64(y); }
F i64 wrap_mul(i64 x, i64 y) { return u64(x) * u64(y); }

F int divide(int x, int y) { return y == 0 ? 0 : y == -1 ? wrap_sub(0, x) : x / y; }
F i64 divide(i64 x, i64 y) { return y == 0 ? 0 : y == -1 ? wrap_sub(0ll, x) : x / y; }
F u32 divide(u32 x, u32 y) { return y == 0 ? 0 : x / y; }
F int remainder(int x, int y) { return y == 0 ? x : y == -1 ? 0 : x % y; }
F i64 remainder(i64 x, i64 y) { return y == 0 ? x : y == -1 ? 0 : x % y; }
F u32 remainder(u32 x, u32 y) { return y == 0 ? x : x % y; }
F float remainder(float x, float y) { return fmodf(x, y); }
F double remainder(double x, double y) { return fmod(x, y); }

F float minimum(float x, float y) { float r; asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y)); return r; }
F float maximum(float x, float y) { float r; asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y)); return r; }
F double minimum(double x, double y) { double r; asm("min.f64 %0, %1, %2;" : "=d"(r) : "d"(x), "d"(y)); return x != x || y != y ? real(0x7ff8000000000000ull) : r; }
F double maximum(double x, double y) { double r; asm("max.f64 %0, %1, %2;" : "=d"(r) : "d"(x), "d"(y)); return x != x || y != y ? real(0x7ff8000000000000ull) : r; }
F int minimum(int x, int y) { return x < y ? x : y; }
F int maximum(int x, int y) { return x > y ? x : y; }
F i64 minimum(i64 x, i64 y) { return x < y ? x : y; }
F i64 maximum(i64 x, i64 y) { return x > y ? x : y; }
F u32 minimum(u32 x, u32 y) { return x < y ? x : y; }
F u32 maximum(u32 x, u32 y) { return x > y ? x : y; }

F float approx_inverse(float x) { float r; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }
F float approx_exp2(float x) { float r; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }
// The remainder of the approximation is exact, so that one Newton step rounds correctly.
F float inverse(float x) { float y = approx_inverse(x); return __fmaf_rn(y, __fmaf_rn(-x, y, 1.0f), y); }

F int shift_left(int x, int y) { return u32(y) > 31 ? 0 : int(u32(x) << y); }
F i64 shift_left(i64 x, i64 y) { return u64(y) > 63 ? 0 : i64(u64(x) << y); }
F u32 shift_left(u32 x, u32 y) { return y > 31 ? 0 : x << y; }
F int shift_right(int x, int y) { return x >> (u32(y) > 31 ? 31 : y); }
F i64 shift_right(i64 x, i64 y) { return x >> (u64(y) > 63 ? 63 : y); }
F u32 shift_right(u32 x, u32 y) { return y > 31 ? 0 : x >> y; }

F float f16_to_f32(u16 x) { float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x)); return r; }
F float bf16_to_f32(u16 x) { return real(u32(x) << 16); }
F u32 f32_to_f16x2(float a, float b) { u32 r; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a)); return r; }
F u32 f32_to_bf16x2(float a, float b) { u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a)); return r; }
F u16 f32_to_f16(float x) { return f32_to_f16x2(x, 0.0f); }
F u16 f32_to_bf16(float x) { return f32_to_bf16x2(x, 0.0f); }
// Rounded to odd: rounding that once more equals rounding once.
F float round_to_odd(double x) {
  float n = __double2float_rn(x);
  double back = n;
  return real((bits(n) - (fabs(back) > fabs(x))) | (back < x || back > x));
}
// Rounds to 16 bits as the integer would: bits that a double cannot hold stand in its last place.
F double sticky(i64 x) {
  i64 cut = x & ~0x7ffll;
  u64 magnitude = x < 0 ? 0 - u64(x) : u64(x);
  return double(magnitude < 1ull << 53 ? x : x & 0x7ff ? cut | 0x400 : cut);
}
F int to_i32(float x) { return __float2int_rz(x); }
F u32 to_u32(float x) { return __float2uint_rz(x); }
F i64 to_i64(float x) { return x != x ? 0 : __float2ll_rz(x); }
F int to_i32(double x) { return x != x ? 0 : __double2int_rz(x); }
F u32 to_u32(double x) { return x != x ? 0 : __double2uint_rz(x); }
F i64 to_i64(double x) { return x != x ? 0 : __double2ll_rz(x); }
}  // namespace b

)";

}  // namespace braze::codegen
