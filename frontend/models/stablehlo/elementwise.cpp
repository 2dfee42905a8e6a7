// elementwise.cpp — operations on each element by itself, and conversions.
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
Tensor neighbour(Node& n) { return next_after(n[0], n[1]); }
Tensor angle(Node& n) {
  n.ignore("result_accuracy");
  return atan2(n[0], n[1]);
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
      {"chlo.acos", unary<acos>},
      {"chlo.acosh", unary<acosh>},
      {"chlo.asin", unary<asin>},
      {"chlo.asinh", unary<asinh>},
      {"chlo.atan", unary<atan>},
      {"chlo.atanh", unary<atanh>},
      {"chlo.cosh", unary<cosh>},
      {"chlo.digamma", unary<digamma>},
      {"chlo.erf", unary<erf>},
      {"chlo.erf_inv", unary<erfinv>},
      {"chlo.erfc", error_function_complement},
      {"chlo.lgamma", unary<lgamma>},
      {"chlo.next_after", neighbour},
      {"chlo.sinh", unary<sinh>},
      {"chlo.square", unary<square>},
      {"chlo.tan", unary<tan>},
      {"stablehlo.abs", absolute},
      {"stablehlo.add", sum_of},
      {"stablehlo.and", bits_and},
      {"stablehlo.atan2", angle},
      {"stablehlo.bitcast_convert", bits_as},
      {"stablehlo.cbrt", unary<cbrt>},
      {"stablehlo.ceil", unary<ceil>},
      {"stablehlo.clamp", clamped},
      {"stablehlo.compare", compared},
      {"stablehlo.convert", converted},
      {"stablehlo.copy", same},
      {"stablehlo.cosine", unary<cos>},
      {"stablehlo.count_leading_zeros", unary<count_leading_zeros>},
      {"stablehlo.divide", quotient},
      {"stablehlo.exponential", unary<exp>},
      {"stablehlo.exponential_minus_one", unary<expm1>},
      {"stablehlo.floor", unary<floor>},
      {"stablehlo.is_finite", unary<is_finite>},
      {"stablehlo.log", unary<log>},
      {"stablehlo.log_plus_one", unary<log1p>},
      {"stablehlo.logistic", unary<sigmoid>},
      {"stablehlo.maximum", greater_of},
      {"stablehlo.minimum", lesser_of},
      {"stablehlo.multiply", product_of},
      {"stablehlo.negate", negative},
      {"stablehlo.not", bits_not},
      {"stablehlo.or", bits_or},
      {"stablehlo.popcnt", unary<popcount>},
      {"stablehlo.power", power},
      {"stablehlo.reduce_precision", less_precise},
      {"stablehlo.remainder", rest},
      {"stablehlo.round_nearest_afz", unary<round_away>},
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
      {"stablehlo.tan", unary<tan>},
      {"stablehlo.tanh", unary<tanh>},
      {"stablehlo.xor", bits_xor},
  };
  return kRows;
}

}  // namespace braze::stablehlo
