// elementwise.cpp — elementwise operators, and conversions.
#include <cmath>
#include <numbers>

#include "frontend/models/onnx/node.h"
#include "ir/support/text.h"

namespace braze::onnx {

namespace {

// f of x. For shorter floats, it is computed in f32 and rounded once.
template <class F>
Tensor in_f32(const Tensor& x, const F& f) {
  return cast(f(widened(x)), x.dtype());
}

// ---- Numbers ----------------------------------------------------------------------------------

Tensor mod(OnnxNode& n) {
  const Tensor rest = n[0] % n[1];
  if (n.integer("fmod", 0) != 0) return rest;
  // The result has the sign of the divisor.
  const Tensor is_other = (rest != 0) & ((rest < 0) != (n[1] < 0));
  return where(is_other, rest + n[1], rest);
}

// Base and exponent may have different types. The result has the type of the base.
Tensor power(OnnxNode& n) {
  const Tensor &x = n[0], &y = n[1];
  if (is_floating(x.dtype()) && x.dtype() == y.dtype()) return pow(x, y);
  if (is_floating(x.dtype()))
    return cast(pow(widened(x), cast(y, compute_type(x.dtype()))), x.dtype());
  // Computed in f64, which can represent all powers that fit into 32 bits. Rounding may leave the
  // result just below a whole number. Then that number is meant.
  const Tensor real = pow(cast(x, f64), cast(y, f64)), whole = round_even(real);
  return cast(where(abs(real - whole) <= abs(whole) * 1e-12, whole, trunc(real)), x.dtype());
}

Tensor bit_shift(OnnxNode& n) {
  const std::string direction = n.text("direction");
  if (direction == "LEFT") return shl(n[0], n[1]);
  if (direction == "RIGHT") return shr(n[0], n[1]);
  n.refuse("the direction is neither LEFT nor RIGHT");
}

template <Tensor (*combine)(const Operand&, const Operand&, Where)>
Tensor all_of(OnnxNode& n) {
  const Tensors parts = n.all();
  if (parts.empty()) n.refuse("there is no operand");
  Tensor out = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) out = combine(out, parts[i], Where::current());
  return out;
}

Tensor mean_of(OnnxNode& n) {
  const Tensor total = all_of<add>(n);
  return total / static_cast<double>(n.count());
}

Tensor clip(OnnxNode& n) {
  Tensor x = n[0];
  // Before version 11 the limits are attributes. Their default values change no number.
  if (n.has_attribute("min")) x = maximum(x, n.real("min"));
  if (n.has_attribute("max")) x = minimum(x, n.real("max"));
  if (n.has(1)) x = maximum(x, n[1]);
  if (n.has(2)) x = minimum(x, n[2]);
  return x;
}

template <Tensor (*f)(const Tensor&)>
Tensor formula(OnnxNode& n) {
  return in_f32(n[0], f);
}

// ---- Activations ------------------------------------------------------------------------------

Tensor selu(OnnxNode& n) {
  const double alpha = n.real("alpha", double{1.67326319217681884765625f});
  const double gamma = n.real("gamma", double{1.05070102214813232421875f});
  return in_f32(n[0], [&](const Tensor& x) { return elu(x, alpha) * gamma; });
}
Tensor celu(OnnxNode& n) {
  const double alpha = n.real("alpha", 1.0);
  return in_f32(n[0], [&](const Tensor& x) {
    return maximum(x, 0.0) + minimum(expm1(x / alpha) * alpha, 0.0);
  });
}
Tensor hard_sigmoid_of(OnnxNode& n) {
  const double alpha = n.real("alpha", double{0.2f}), beta = n.real("beta", 0.5);
  return in_f32(n[0], [&](const Tensor& x) { return clamp(x * alpha + beta, 0.0, 1.0); });
}
Tensor thresholded_relu(OnnxNode& n) {
  const double alpha = n.real("alpha", 1.0);
  return where(n[0] > alpha, n[0], full_like(n[0], 0.0));
}
Tensor gelu_of(OnnxNode& n) {
  const std::string how = n.text("approximate", "none");
  if (how == "none") return gelu(n[0]);
  if (how == "tanh") return gelu_tanh(n[0]);
  n.refuse(fmt::format("approximate is {}", how));
}
Tensor mish_of(const Tensor& x) { return x * tanh(softplus(x)); }
Tensor softsign_of(const Tensor& x) { return x / (abs(x) + 1); }
Tensor swish(OnnxNode& n) {
  const double alpha = n.real("alpha", 1.0);
  return in_f32(n[0], [&](const Tensor& x) { return x * sigmoid(x * alpha); });
}
Tensor shrink(OnnxNode& n) {
  const double bias = n.real("bias", 0.0), bound = n.real("lambd", 0.5);
  const Tensor &x = n[0], y = widened(x);
  const Tensor shrunk = where(y < -bound, y + bias, where(y > bound, y - bias, full_like(y, 0.0)));
  return cast(shrunk, x.dtype());
}
Tensor is_infinite(OnnxNode& n) {
  const Tensor x = widened(n[0]);
  const bool low = n.integer("detect_negative", 1) != 0;
  const bool high = n.integer("detect_positive", 1) != 0;
  const Tensor is_low = x == -INFINITY, is_high = x == INFINITY;
  if (low && high) return is_low | is_high;
  if (low) return is_low;
  if (high) return is_high;
  return cast(full_like(x, 0.0), boolean);
}

// The slopes are broadcast to x.
Tensor prelu(OnnxNode& n) { return where(n[0] < 0, n[0] * n[1], n[0]); }

// ---- Conversions ------------------------------------------------------------------------------

// Keeps only the low bits of the number, as many as the type has.
Tensor narrowed(const Tensor& x, const ElementType& type) {
  const int free = 8 - type.bits;
  if (type.dtype == DType::U8) return x & ((1 << type.bits) - 1);
  return cast(shr(shl(x, free), free), i8);
}

Tensor converted(OnnxNode& n, const Tensor& x, const ElementType& type, bool saturates) {
  n.set_bits(type.bits);
  if (type.bits) {
    if (!is_floating(x.dtype())) return narrowed(cast(x, type.dtype), type);
    // Floats beyond the type's range are undefined. Of integers the low bits are kept.
    return narrowed(cast(cast(widened(x), i32), type.dtype), type);
  }
  if (type.dtype == x.dtype()) return x;
  Tensor from = is_stored_float(x.dtype()) ? cast(x, f32) : x;
  if (!is_stored_float(type.dtype)) return cast(from, type.dtype);
  const double most = type.dtype == DType::F8E4M3 ? 448 : 57344;
  if (!is_floating(from.dtype())) from = cast(from, f32);
  from = widened(from);
  if (saturates) from = where(is_nan(from), from, clamp(from, -most, most));
  return cast(from, type.dtype);
}

Tensor cast_to(OnnxNode& n) {
  n.ignore("round_mode");  // it is for FLOAT8E8M0, which Braze does not have
  return converted(n, n[0], n.type("to"), n.integer("saturate", 1) != 0);
}
Tensor cast_like(OnnxNode& n) {
  n.ignore("round_mode");
  return converted(n, n[0], {n[1].dtype(), n.bits(1)}, n.integer("saturate", 1) != 0);
}
Tensor bit_cast(OnnxNode& n) {
  const ElementType type = n.type("to");
  if (type.bits || n.bits(0))
    n.refuse("integers of fewer than 8 bits have no bits of their own here");
  return bitcast(n[0], type.dtype);
}

Tensor choose(OnnxNode& n) { return where(n[0], n[1], n[2]); }
Tensor same(OnnxNode& n) {
  n.set_bits(n.bits(0));
  return n[0];
}

}  // namespace

const Rows& elementwise_rows() {
  static const Rows kRows = {
      {"Abs", [](OnnxNode& n) { return abs(n[0]); }},
      {"Acos", [](OnnxNode& n) { return acos(n[0]); }},
      {"Acosh", [](OnnxNode& n) { return acosh(n[0]); }, 9},
      {"Add", [](OnnxNode& n) { return n[0] + n[1]; }},
      {"And", [](OnnxNode& n) { return n[0] & n[1]; }},
      {"Asin", [](OnnxNode& n) { return asin(n[0]); }},
      {"Asinh", [](OnnxNode& n) { return asinh(n[0]); }, 9},
      {"Atan", [](OnnxNode& n) { return atan(n[0]); }},
      {"Atanh", [](OnnxNode& n) { return atanh(n[0]); }, 9},
      {"BitCast", bit_cast, 26},
      {"BitShift", bit_shift, 11},
      {"BitwiseAnd", [](OnnxNode& n) { return n[0] & n[1]; }, 18},
      {"BitwiseNot", [](OnnxNode& n) { return ~n[0]; }, 18},
      {"BitwiseOr", [](OnnxNode& n) { return n[0] | n[1]; }, 18},
      {"BitwiseXor", [](OnnxNode& n) { return n[0] ^ n[1]; }, 18},
      {"Cast", cast_to},
      {"CastLike", cast_like, 15},
      {"Ceil", [](OnnxNode& n) { return ceil(n[0]); }},
      {"Celu", celu, 12},
      {"Clip", clip},
      {"Cos", [](OnnxNode& n) { return cos(n[0]); }},
      {"Cosh", [](OnnxNode& n) { return cosh(n[0]); }, 9},
      {"Div", [](OnnxNode& n) { return n[0] / n[1]; }},
      {"Elu", [](OnnxNode& n) { return elu(n[0], n.real("alpha", 1.0)); }},
      {"Equal", [](OnnxNode& n) { return n[0] == n[1]; }},
      {"Erf", [](OnnxNode& n) { return erf(n[0]); }, 9},
      {"Exp", [](OnnxNode& n) { return exp(n[0]); }},
      {"Floor", [](OnnxNode& n) { return floor(n[0]); }},
      {"Gelu", gelu_of, 20},
      {"Greater", [](OnnxNode& n) { return n[0] > n[1]; }},
      {"GreaterOrEqual", [](OnnxNode& n) { return n[0] >= n[1]; }, 12},
      {"HardSigmoid", hard_sigmoid_of},
      {"HardSwish", [](OnnxNode& n) { return hard_swish(n[0]); }, 14},
      {"Identity", same},
      {"IsInf", is_infinite, 10},
      {"IsNaN", [](OnnxNode& n) { return is_nan(widened(n[0])); }, 9},
      {"LeakyRelu", [](OnnxNode& n) { return leaky_relu(n[0], n.real("alpha", double{0.01f})); }},
      {"Less", [](OnnxNode& n) { return n[0] < n[1]; }},
      {"LessOrEqual", [](OnnxNode& n) { return n[0] <= n[1]; }, 12},
      {"Log", [](OnnxNode& n) { return log(n[0]); }},
      {"Max", all_of<maximum>},
      {"Mean", mean_of},
      {"Min", all_of<minimum>},
      {"Mish", formula<mish_of>, 18},
      {"Mod", mod, 10},
      {"Mul", [](OnnxNode& n) { return n[0] * n[1]; }},
      {"Neg", [](OnnxNode& n) { return -n[0]; }},
      {"Not", [](OnnxNode& n) { return !n[0]; }},
      {"Or", [](OnnxNode& n) { return n[0] | n[1]; }},
      {"PRelu", prelu},
      {"Pow", power},
      {"Reciprocal", [](OnnxNode& n) { return reciprocal(n[0]); }},
      {"Relu", [](OnnxNode& n) { return relu(n[0]); }},
      {"Round", [](OnnxNode& n) { return round_even(n[0]); }, 11},
      {"Selu", selu},
      {"Shrink", shrink, 9},
      {"Sigmoid", [](OnnxNode& n) { return sigmoid(n[0]); }},
      {"Sign", [](OnnxNode& n) { return sign(n[0]); }, 9},
      {"Sin", [](OnnxNode& n) { return sin(n[0]); }},
      {"Sinh", [](OnnxNode& n) { return sinh(n[0]); }, 9},
      {"Softplus", [](OnnxNode& n) { return softplus(n[0]); }},
      {"Softsign", formula<softsign_of>},
      {"Sqrt", [](OnnxNode& n) { return sqrt(n[0]); }},
      {"Sub", [](OnnxNode& n) { return n[0] - n[1]; }},
      {"Sum", all_of<add>},
      {"Swish", swish, 24},
      {"Tan", [](OnnxNode& n) { return tan(n[0]); }},
      {"Tanh", [](OnnxNode& n) { return tanh(n[0]); }},
      {"ThresholdedRelu", thresholded_relu, 10},
      {"Where", choose, 9},
      {"Xor", [](OnnxNode& n) { return n[0] ^ n[1]; }},
  };
  return kRows;
}

}  // namespace braze::onnx
