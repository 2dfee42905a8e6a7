// formulas.h — functions that occur in files of models and are not in our table of ops, for f32 and
// f64.
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

}  // namespace braze
