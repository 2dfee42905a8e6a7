#include "ir/ops/scalar.h"

#include <bit>

#include "braze/error.h"
#include "ir/ops/elementwise.h"
#include "ir/ops/machine_semantics.h"

namespace braze {

Scalar Scalar::constant(double value) const {
  return constant_bits(dtype_, braze::constant_bits(dtype_, value));
}

Scalar Scalar::constant_bits(DType dtype, uint64_t bits) const {
  BRAZE_CHECK(emitter_, "a constant beside a null Scalar");
  return emitter_->constant(dtype, bits);
}

Scalar operator+(const Scalar& a, const Scalar& b) { return add(a, b); }
Scalar operator-(const Scalar& a, const Scalar& b) { return sub(a, b); }
Scalar operator*(const Scalar& a, const Scalar& b) { return mul(a, b); }
Scalar operator/(const Scalar& a, const Scalar& b) { return div(a, b); }
Scalar operator-(const Scalar& a) { return neg(a); }
Scalar operator+(const Scalar& a, double b) { return add(a, a.constant(b)); }
Scalar operator+(double a, const Scalar& b) { return add(b.constant(a), b); }
Scalar operator-(const Scalar& a, double b) { return sub(a, a.constant(b)); }
Scalar operator-(double a, const Scalar& b) { return sub(b.constant(a), b); }
Scalar operator*(const Scalar& a, double b) { return mul(a, a.constant(b)); }
Scalar operator*(double a, const Scalar& b) { return mul(b.constant(a), b); }
Scalar operator/(const Scalar& a, double b) { return div(a, a.constant(b)); }
Scalar operator/(double a, const Scalar& b) { return div(b.constant(a), b); }

namespace {

Scalar emit_chosen(ElementwiseOp op, const Scalar& x, DType to) {
  BRAZE_CHECK(x, "an operand is a null Scalar");
  return x.emitter()->apply(op, {&x, 1}, to);
}

}  // namespace

Scalar convert(const Scalar& x, DType to) {
  return x.dtype() == to ? x : emit_chosen(ElementwiseOp::convert, x, to);
}

Scalar bitcast(const Scalar& x, DType to) {
  BRAZE_CHECK(size_of(x.dtype()) == size_of(to), "bitcast between sizes");
  return x.dtype() == to ? x : emit_chosen(ElementwiseOp::bitcast, x, to);
}

// Literals are converted from f64 and i64 by the rows for conversions, and their values to them.

uint64_t constant_bits(DType dtype, double value) {
  return evaluate_machine(ElementwiseOp::convert, DType::F64, dtype,
                          std::bit_cast<uint64_t>(value));
}

uint64_t constant_bits_int(DType dtype, int64_t value) {
  return evaluate_machine(ElementwiseOp::convert, DType::I64, dtype, static_cast<uint64_t>(value));
}

double bits_to_double(DType dtype, uint64_t bits) {
  return std::bit_cast<double>(evaluate_machine(ElementwiseOp::convert, dtype, DType::F64, bits));
}

int64_t bits_to_int(DType dtype, uint64_t bits) {
  return static_cast<int64_t>(evaluate_machine(ElementwiseOp::convert, dtype, DType::I64, bits));
}

std::string integer_text(DType dtype, uint64_t bits) {
  const int64_t value = bits_to_int(dtype, bits);
  return is_signed_integer(dtype) ? std::to_string(value)
                                  : std::to_string(static_cast<uint64_t>(value));
}

std::optional<uint64_t> integer_bits(DType dtype, bool negative, uint64_t magnitude) {
  const int width = dtype == DType::Bool ? 1 : static_cast<int>(8 * size_of(dtype));
  const uint64_t greatest = ~uint64_t{0} >> (64 - width + is_signed_integer(dtype));
  const uint64_t limit = !negative ? greatest : is_signed_integer(dtype) ? greatest + 1 : 0;
  if (magnitude > limit) return std::nullopt;
  return constant_bits_int(dtype, static_cast<int64_t>(negative ? 0 - magnitude : magnitude));
}

}  // namespace braze
