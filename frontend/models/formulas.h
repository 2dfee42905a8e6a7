// formulas.h — functions of f32 and f64 that files of models use and our table of ops does not
// have.
#pragma once

#include "braze/tensor.h"

namespace braze {

Tensor sinh_of(const Tensor& x);
Tensor asinh_of(const Tensor& x);
Tensor acosh_of(const Tensor& x);
Tensor atanh_of(const Tensor& x);
Tensor tan_of(const Tensor& x);
Tensor cosh_of(const Tensor& x);
Tensor atan_of(const Tensor& x);
Tensor asin_of(const Tensor& x);
Tensor acos_of(const Tensor& x);
/// The y with erf(y) = x.
Tensor erf_inv_of(const Tensor& x);
/// log |gamma(x)|. It loses digits near its zeros at negative x.
Tensor lgamma_of(const Tensor& x);
/// The derivative of log(gamma(x)); NaN at 0 and at negative whole numbers. It loses digits near
/// its zeros.
Tensor digamma_of(const Tensor& x);

}  // namespace braze
