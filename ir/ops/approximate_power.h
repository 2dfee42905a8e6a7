// approximate_power.h — the approximate 2^x of processors that have no unit for it.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "braze/dtype.h"

namespace braze::math {

/// 2^t for |t| <= 1/2 to 2^-23.3, highest order first; tools/math/fit.py made it.
inline constexpr std::initializer_list<double> kApproximatePower = {
    0.0013273901, 0.009671497, 0.05550701, 0.24022242, 0.693147, 1.0};

/// With x = n + t, the power is 2^n * 2^t. The sum x + 1.5 * 2^23 holds n in its low bits. Below
/// -127 the power is 0, and from 128 on it is infinity. `S` is a scalar as in math_bodies.h, an
/// f32.
template <class S>
S approximate_power(const S& x) {
  const S least = x.constant(-127.0), greatest = x.constant(128.0);
  const S low = select(lt(x, least), least, x);  // keeps NaN
  const S bounded = select(lt(greatest, low), greatest, low);
  const S rounded = bounded + x.constant(0x1.8p23);
  const S t = bounded - (rounded - x.constant(0x1.8p23));
  const double* coefficient = kApproximatePower.begin();
  S p = x.constant(*coefficient);
  while (++coefficient != kApproximatePower.end()) p = fma(p, t, x.constant(*coefficient));
  const auto word = [&](uint32_t bits) { return x.constant_bits(DType::I32, bits); };
  const S power = shl(bitcast(rounded, DType::I32), word(23)) + word(0x3f800000);
  return p * bitcast(power, DType::F32);
}

}  // namespace braze::math
