// elementwise.cpp — operations on each element by itself, and conversions.
#include <cmath>
#include <numbers>

#include "frontend/models/formulas.h"
#include "frontend/models/stablehlo/node.h"
#include "ir/support/text.h"

namespace braze::stablehlo {

namespace {

using Unary = Tensor (*)(const Tensor&, Where);

// An operation that is one of our functions. A required accuracy is ignored, because ours is the
// best anyway.
template <Unary f>
Tensor unary(Node& n) {
  n.ignore("result_accuracy");
  return f(n[0], Where::current());
}
// A function of formulas.h. For floats shorter than f32 it is computed in f32 and rounded once.
template <Tensor (*f)(const Tensor&)>
Tensor formula(Node& n) {
  n.ignore("result_accuracy");
  const DType dtype = n[0].dtype();
  return cast(f(cast(n[0], compute_type(dtype))), dtype);
}

DType unsigned_of(DType dtype) {
  constexpr DType kTypes[] = {u8, u16, u32, u64};
  size_t i = 0;
  for (size_t bytes = size_of(dtype); bytes > 1; bytes /= 2) ++i;
  return kTypes[i];
}
DType signed_of(DType dtype) {
  constexpr DType kTypes[] = {i8, i16, i32, i64};
  size_t i = 0;
  for (size_t bytes = size_of(dtype); bytes > 1; bytes /= 2) ++i;
  return kTypes[i];
}

bool is_bool(const Node& n) { return n[0].dtype() == boolean; }

Tensor sum_of(Node& n) { return is_bool(n) ? n[0] | n[1] : n[0] + n[1]; }
Tensor product_of(Node& n) { return is_bool(n) ? n[0] & n[1] : n[0] * n[1]; }
Tensor greater_of(Node& n) { return is_bool(n) ? n[0] | n[1] : maximum(n[0], n[1]); }
Tensor lesser_of(Node& n) { return is_bool(n) ? n[0] & n[1] : minimum(n[0], n[1]); }
Tensor difference(Node& n) { return n[0] - n[1]; }
Tensor quotient(Node& n) { return n[0] / n[1]; }
Tensor rest(Node& n) { return n[0] % n[1]; }
Tensor bits_and(Node& n) { return n[0] & n[1]; }
Tensor bits_or(Node& n) { return n[0] | n[1]; }
Tensor bits_xor(Node& n) { return n[0] ^ n[1]; }
Tensor bits_not(Node& n) { return is_bool(n) ? !n[0] : ~n[0]; }
Tensor negative(Node& n) { return -n[0]; }
Tensor absolute(Node& n) { return is_unsigned_integer(n[0].dtype()) ? n[0] : abs(n[0]); }

// Whole powers by repeated squaring, with one step for each bit of the exponent.
Tensor power(Node& n) {
  n.ignore("result_accuracy");
  const Tensor &x = n[0], &y = n[1];
  if (is_floating(x.dtype())) return pow(x, y);
  Tensor out = ones_like(x), square = x, exponent = y;
  const auto bits = static_cast<int>(8 * size_of(x.dtype()));
  for (int i = 0; i < bits - (is_signed_integer(x.dtype()) ? 1 : 0); ++i) {
    out = where((exponent & 1) != 0, out * square, out);
    square = square * square;
    exponent = shr(exponent, 1);
  }
  if (!is_signed_integer(x.dtype())) return out;
  // For negative exponents: 1 and -1 have inverses, and those of other numbers are rounded to 0.
  const Tensor is_odd = (y & 1) != 0;
  const Tensor inverse =
      where(x == 1, 1, where(x == -1, where(is_odd, x, ones_like(x)), zeros_like(x)));
  return where(y < 0, inverse, out);
}

Tensor shifted_right(const Tensor& x, const Tensor& count, DType as) {
  return bitcast(shr(bitcast(x, as), bitcast(count, as)), x.dtype());
}
Tensor shift_right_logical(Node& n) { return shifted_right(n[0], n[1], unsigned_of(n[0].dtype())); }
Tensor shift_right_arithmetic(Node& n) {
  return shifted_right(n[0], n[1], signed_of(n[0].dtype()));
}
Tensor shift_left(Node& n) { return shl(n[0], n[1]); }

Tensor ones_in(Node& n) {
  const DType dtype = n[0].dtype();
  const Tensor x = cast(bitcast(n[0], unsigned_of(dtype)), u64);
  Tensor out = full_like(x, 0);
  for (int i = 0; i < static_cast<int>(8 * size_of(dtype)); ++i) out = out + (shr(x, i) & 1);
  return cast(out, dtype);
}
Tensor leading_zeros(Node& n) {
  const DType dtype = n[0].dtype();
  const auto bits = static_cast<int>(8 * size_of(dtype));
  const Tensor x = cast(bitcast(n[0], unsigned_of(dtype)), u64);
  Tensor out = full_like(x, bits);
  for (int i = 0; i < bits; ++i) out = where(shr(x, i) != 0, bits - 1 - i, out);
  return cast(out, dtype);
}

Tensor compared(Node& n) {
  Tensor x = n[0], y = n[1];
  const std::string type = n.word("compare_type", "NOTYPE");
  if (type == "TOTALORDER" && is_floating(x.dtype())) {
    x = total_order(x);
    y = total_order(y);
  }
  const std::string direction = n.word("comparison_direction");
  if (direction == "EQ") return x == y;
  if (direction == "NE") return x != y;
  if (direction == "LT") return x < y;
  if (direction == "LE") return x <= y;
  if (direction == "GT") return x > y;
  if (direction == "GE") return x >= y;
  n.refuse(fmt::format("there is no comparison {}", direction));
}

Tensor selected(Node& n) { return where(n[0], n[1], n[2]); }
Tensor clamped(Node& n) { return minimum(maximum(n[1], n[0]), n[2]); }
Tensor converted(Node& n) { return cast(n[0], n.result().dtype); }
Tensor finite(Node& n) {
  const Tensor x = cast(n[0], compute_type(n[0].dtype()));
  return abs(x) < std::numeric_limits<double>::infinity();
}

// The neighbour of x on the way to y.
Tensor next_after(Node& n) {
  const Tensor &x = n[0], &y = n[1];
  const DType as = signed_of(x.dtype());
  const Tensor bits = bitcast(x, as);
  // The bits without the sign count the numbers from zero on.
  const Tensor is_outwards = (x < y) == (x > 0.0);
  const Tensor neighbour = bitcast(where(is_outwards, bits + 1, bits - 1), x.dtype());
  const Tensor least = bitcast(full_like(bits, 1), x.dtype());
  const Tensor from_zero = where(y < 0.0, -least, least);
  return where(is_nan(x) | is_nan(y), x + y,
               where(x == y, y, where(x == 0.0, from_zero, neighbour)));
}

// Rounds to the nearest whole number, and ties away from zero.
Tensor round_away(Node& n) {
  const Tensor& x = n[0];
  const Tensor whole = trunc(x);
  return where(abs(x - whole) >= 0.5, whole + sign(x), whole);
}

Tensor cube_root(const Tensor& x) {
  const Tensor a = abs(x);
  const Tensor y = pow(a, 1.0 / 3.0);
  // One step of Newton's method. 0 and infinity must stay as they are.
  const Tensor better = y - (y * y * y - a) / (y * y * 3.0);
  const Tensor root = where((a == 0.0) | !(a < std::numeric_limits<double>::infinity()), y, better);
  return where(x < 0.0, -root, where(x == 0.0, x, root));
}

Tensor atan2_of(Node& n) {
  const DType dtype = n[0].dtype();
  const Tensor y = cast(n[0], compute_type(dtype)), x = cast(n[1], compute_type(dtype));
  constexpr double kPi = std::numbers::pi;
  const Tensor ay = abs(y), ax = abs(x);
  const Tensor is_steep = ay > ax;
  const Tensor most = maximum(ax, ay), least = minimum(ax, ay);
  // Equal numbers may both be infinite, or both zero.
  const Tensor ratio =
      where(most == least, where(most == 0.0, zeros_like(x), ones_like(x)), least / most);
  const Tensor first = atan_of(ratio);
  const Tensor angle = where(is_steep, kPi / 2 - first, first);
  // The sign of -0 counts too.
  const auto is_negative = [](const Tensor& t) { return bitcast(t, signed_of(t.dtype())) < 0; };
  const Tensor turned = where(is_negative(x), kPi - angle, angle);
  const Tensor out = where(is_negative(y), -turned, turned);
  return cast(where(is_nan(x) | is_nan(y), x + y, out), dtype);
}

// The same bits as elements of another type. If the sizes of the types differ, a last axis is added
// whose elements share the bytes of one, or the last axis is joined.
Tensor bits_as(Node& n) {
  const Tensor& x = n[0];
  const TensorType& to = n.result();
  const size_t from_bytes = size_of(x.dtype()), to_bytes = size_of(to.dtype);
  if (x.dtype() == boolean || to.dtype == boolean) n.refuse("bools have no bits of another type");
  if (from_bytes == to_bytes) return bitcast(x, to.dtype);
  if (from_bytes > to_bytes) {
    const DType wide = unsigned_of(x.dtype()), narrow = unsigned_of(to.dtype);
    Dims shape = x.shape();
    shape.emplace_back(static_cast<int64_t>(from_bytes / to_bytes));
    const Tensor place = arange(wide, shape, -1) * static_cast<int64_t>(8 * to_bytes);
    return bitcast(cast(shr(broadcast_to(expand_dims(bitcast(x, wide), -1), shape), place), narrow),
                   to.dtype);
  }
  const DType wide = unsigned_of(to.dtype), narrow = unsigned_of(x.dtype());
  const Tensor bits = cast(bitcast(x, narrow), wide);
  const Tensor place = arange(wide, x.shape(), -1) * static_cast<int64_t>(8 * from_bytes);
  return bitcast(sum(shl(bits, place), -1), to.dtype);
}

// Rounds to a type of fewer bits, and converts back.
Tensor less_precise(Node& n) {
  const std::string format = n.word("format", "");
  int64_t exponent = 0, mantissa = 0;
  if (!format.empty()) {
    if (std::sscanf(format.c_str(), "e%ldm%ld", &exponent, &mantissa) != 2)
      n.refuse(fmt::format("the format is {}", format));
  } else {
    exponent = n.integer("exponent_bits");
    mantissa = n.integer("mantissa_bits");
  }
  const auto row = [](DType dtype) { return kDTypeInfos[static_cast<size_t>(dtype)]; };
  const DType own = n[0].dtype();
  for (const DType to : {f64, f32, bf16, f16}) {
    if (row(to).exponent != exponent || row(to).fraction != mantissa) continue;
    return size_of(to) >= size_of(own) ? n[0] : cast(cast(n[0], to), own);
  }
  n.refuse(fmt::format("{} bits of exponent and {} of fraction", exponent, mantissa));
}

Tensor same(Node& n) { return n[0]; }

Tensor error_function_complement(Node& n) { return erfc(n[0]); }

}  // namespace

Tensor total_order(const Tensor& x) {
  const DType as = signed_of(x.dtype());
  const Tensor bits = bitcast(x, as);
  const auto width = static_cast<int>(8 * size_of(as));
  // In negative numbers, all bits but the sign are inverted.
  const Tensor mask = bitcast(shr(bitcast(shr(bits, width - 1), unsigned_of(as)), 1), as);
  return bits ^ mask;
}

const Rows& elementwise_rows() {
  static const Rows kRows = {
      {"chlo.acos", formula<acos_of>},
      {"chlo.acosh", formula<acosh_of>},
      {"chlo.asin", formula<asin_of>},
      {"chlo.asinh", formula<asinh_of>},
      {"chlo.atan", formula<atan_of>},
      {"chlo.atanh", formula<atanh_of>},
      {"chlo.cosh", formula<cosh_of>},
      {"chlo.digamma", formula<digamma_of>},
      {"chlo.erf", unary<erf>},
      {"chlo.erf_inv", formula<erf_inv_of>},
      {"chlo.erfc", error_function_complement},
      {"chlo.lgamma", formula<lgamma_of>},
      {"chlo.next_after", next_after},
      {"chlo.sinh", formula<sinh_of>},
      {"chlo.square", unary<square>},
      {"chlo.tan", formula<tan_of>},
      {"stablehlo.abs", absolute},
      {"stablehlo.add", sum_of},
      {"stablehlo.and", bits_and},
      {"stablehlo.atan2", atan2_of},
      {"stablehlo.bitcast_convert", bits_as},
      {"stablehlo.cbrt", formula<cube_root>},
      {"stablehlo.ceil", unary<ceil>},
      {"stablehlo.clamp", clamped},
      {"stablehlo.compare", compared},
      {"stablehlo.convert", converted},
      {"stablehlo.copy", same},
      {"stablehlo.cosine", unary<cos>},
      {"stablehlo.count_leading_zeros", leading_zeros},
      {"stablehlo.divide", quotient},
      {"stablehlo.exponential", unary<exp>},
      {"stablehlo.exponential_minus_one", unary<expm1>},
      {"stablehlo.floor", unary<floor>},
      {"stablehlo.is_finite", finite},
      {"stablehlo.log", unary<log>},
      {"stablehlo.log_plus_one", unary<log1p>},
      {"stablehlo.logistic", unary<sigmoid>},
      {"stablehlo.maximum", greater_of},
      {"stablehlo.minimum", lesser_of},
      {"stablehlo.multiply", product_of},
      {"stablehlo.negate", negative},
      {"stablehlo.not", bits_not},
      {"stablehlo.or", bits_or},
      {"stablehlo.popcnt", ones_in},
      {"stablehlo.power", power},
      {"stablehlo.reduce_precision", less_precise},
      {"stablehlo.remainder", rest},
      {"stablehlo.round_nearest_afz", round_away},
      {"stablehlo.round_nearest_even", unary<round_even>},
      {"stablehlo.rsqrt", unary<rsqrt>},
      {"stablehlo.select", selected},
      {"stablehlo.shift_left", shift_left},
      {"stablehlo.shift_right_arithmetic", shift_right_arithmetic},
      {"stablehlo.shift_right_logical", shift_right_logical},
      {"stablehlo.sign", unary<sign>},
      {"stablehlo.sine", unary<sin>},
      {"stablehlo.sqrt", unary<sqrt>},
      {"stablehlo.subtract", difference},
      {"stablehlo.tan", formula<tan_of>},
      {"stablehlo.tanh", unary<tanh>},
      {"stablehlo.xor", bits_xor},
  };
  return kRows;
}

}  // namespace braze::stablehlo
