// uncertain.h — elements in which implementations may differ, and computing with them.
//
// An Uncertain says what all implementations that keep the promises (reference.h) agree on about
// one element: its bits, or an interval that contains it, or nothing. UncertainRow, UncertainSum
// and UncertainProduct compute with such elements. They derive what holds for the result from what
// holds for the operands, including rounding.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "ir/ops/elementwise.h"
#include "ir/ops/machine_semantics.h"
#include "ir/values/compensated.h"

namespace braze {

struct Uncertain {
  /// Whether every implementation gives exactly `bits` (any NaN for a NaN). Otherwise `bits` is a
  /// guess.
  bool known = false;
  uint64_t bits = 0;
  /// Of floats: a good estimate, and the interval. For an element that is not known, the interval
  /// is either bounded, and the element is a finite number in it; or it is infinite on both sides,
  /// and the element can be anything, even NaN. If the interval is [0, 0], the sign of zero is
  /// open.
  double value = 0;
  double low = 0, high = 0;

  static Uncertain exactly(DType dtype, uint64_t bits);
  static Uncertain between(double value, double low, double high);
  static Uncertain anything(double estimate);
  /// An integer or bool that is not known.
  static Uncertain guess(uint64_t bits) { return {false, bits}; }

  bool is_anything() const { return !known && low == -std::numeric_limits<double>::infinity(); }
  bool may_be(double x) const { return low <= x && x <= high; }
  /// The distance from `value` to the farther end.
  double radius() const;
};

/// The error of one rounding: at most `ulps` of `dtype` plus `f32_ulps` of f32.
struct RoundingError {
  double ulps = 0;
  double f32_ulps = 0;
};

/// `x` after an operation with the result dtype `dtype` has rounded it. With `relaxed`, an
/// implementation may round it at another place, so it need not overflow where `dtype` would.
Uncertain rounded(const Uncertain& x, DType dtype, RoundingError error, bool relaxed);

/// The distance between neighbouring floats of `dtype` at |x|.
double ulp(DType dtype, double x);

/// Computes a machine or math row on one element.
class UncertainRow {
 public:
  /// `relaxed` says that only reductions use the result, so that it may be off by 4 ulp.
  UncertainRow(ElementwiseOp op, DType operand, DType result, bool relaxed);
  /// Absent operands are ignored.
  Uncertain operator()(const Uncertain& x, const Uncertain& y, const Uncertain& z) const;

 private:
  Uncertain select(const Uncertain& condition, const Uncertain& y, const Uncertain& z) const;
  Uncertain of_unknown_integers(const Uncertain* const operands[3]) const;
  Uncertain compare(const Uncertain& x, const Uncertain& y) const;
  Uncertain to_integer(const Uncertain& x) const;
  Uncertain relaxed_convert(const Uncertain& x) const;
  Uncertain real(const Uncertain* const operands[3]) const;
  Uncertain remainder(const Uncertain& x, const Uncertain& y) const;
  Uncertain sine_or_cosine(const Uncertain& x) const;
  Uncertain power(const Uncertain* const operands[3]) const;
  Uncertain of_corners(const Uncertain* const operands[3]) const;
  Uncertain settle(double value, double low, double high, bool infinite_operand) const;
  double at(double x, double y, double z) const;

  ElementwiseOp op_;
  DType operand_, result_;
  bool relaxed_;
  size_t arity_;
  bool is_math_, rounds_;
  MachineFunction exact_;      // on the dtype operand_; null for math rows
  MachineFunction in_double_;  // the same row on f64
};

/// How sums and contractions accumulate: in `accumulator` and in any order, where the error of each
/// addition is at most `unit` times its result.
struct Accumulation {
  DType accumulator;
  double unit;
  DType result;
  bool relaxed;
};

/// A sum of terms in any order. Its error is at most gamma_n * sum |x|, plus the errors of the
/// terms.
class UncertainSum {
 public:
  void add(const Uncertain& x);
  /// Adds a product of finite numbers, whose error is at most `deviation`.
  void add_product(double x, double y, double deviation) {
    ++count_;
    has_products_ = true;
    const bool is_zero = (x == 0 || y == 0) && deviation == 0;
    nonzero_products_ += !is_zero;
    may_be_negative_ = true;
    value_.add_product(x, y);
    below_ += deviation;
    above_ += deviation;
    magnitude_ += std::abs(x * y) + deviation;
  }
  /// Says that all terms are known, and are multiples of 2^`exponent`.
  void set_quantum(int exponent) { quantum_ = exponent; }
  void set_inexact() { all_known_ = false; }
  Uncertain finish(const Accumulation& how) const;

 private:
  bool exact_in(DType dtype, double total) const;

  Compensated value_;
  double below_ = 0, above_ = 0;  // how far the exact sum may be below or above `value_`
  double magnitude_ = 0;          // sum |x|
  int64_t count_ = 0;
  int64_t nonzero_products_ = 0;  // products that may be other than zero
  int quantum_ = std::numeric_limits<int>::max();
  bool nan_ = false, anything_ = false, plus_ = false, minus_ = false;
  bool all_known_ = true, has_products_ = false, may_be_negative_ = false;
};

/// A product of factors in any order.
class UncertainProduct {
 public:
  void multiply(const Uncertain& x);
  Uncertain finish(const Accumulation& how) const;

 private:
  Compensated value_{1, 0};
  // The product of all |value|, and the product of the greatest |x| of each factor.
  double centre_ = 1, magnitude_ = 1;
  double largest_ = 1, smallest_ = 1;  // bounds of all partial products
  double odd_ = 1;                     // product of the factors without their powers of two
  int64_t count_ = 0;
  bool nan_ = false, anything_ = false, infinite_ = false, zero_ = false;
  bool all_known_ = true, may_be_negative_ = false;
};

/// The exponent of the lowest set bit of `x`; INT_MAX for zero, infinities and NaN.
int lowest_bit(double x);

}  // namespace braze
