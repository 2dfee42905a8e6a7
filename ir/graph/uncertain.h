// uncertain.h — numbers of which implementations may differ, and what rounding does to them.
//
// An Uncertain is what all implementations that keep the promises of docs/design (section Numbers)
// agree on about one element: its bits, or an interval that holds it, or nothing. UncertainRow,
// UncertainSum and UncertainProduct compute with them: from what holds for the operands follows
// what holds for the result, rounding included.
#pragma once

#include <cstdint>
#include <limits>

#include "ir/ops/elementwise.h"
#include "ir/ops/machine_semantics.h"
#include "ir/values/compensated.h"

namespace braze {

struct Uncertain {
  /// Every implementation gives exactly `bits` (any NaN for a NaN). Otherwise `bits` is a guess.
  bool known = false;
  uint64_t bits = 0;
  /// Floats: a good estimate, and the interval. If not known, the interval is either bounded, and
  /// the element is a finite number in it; or infinite on both sides, and the element is anything,
  /// NaN too. An interval [0, 0] that is not known leaves the sign of zero open.
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

/// The rounding of one step: at most `ulps` of `dtype` and `f32_ulps` of f32 away.
struct RoundingError {
  double ulps = 0;
  double f32_ulps = 0;
};

/// `x` after an operation with result `dtype` rounds it. `relaxed`: it may be rounded elsewhere, so
/// that it need not overflow where `dtype` does.
Uncertain rounded(const Uncertain& x, DType dtype, RoundingError error, bool relaxed);

/// The distance between neighbouring floats of `dtype` at |x|.
double ulp(DType dtype, double x);

/// A machine or math row on one element.
class UncertainRow {
 public:
  /// `relaxed`: the result is consumed by reductions only, which lets it be computed to 4 ulp.
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
  MachineFunction exact_;      // on operand_, or null for math rows
  MachineFunction in_double_;  // the same row on f64
};

/// How sums and contractions accumulate: in `accumulator`, each addition off by at most `unit`
/// times its result, any order.
struct Accumulation {
  DType accumulator;
  double unit;
  DType result;
  bool relaxed;
};

/// Sum of terms in any order: |error| <= gamma_n * sum |x| on top of the terms' own.
class UncertainSum {
 public:
  void add(const Uncertain& x);
  /// A product of finite numbers, where `deviation` bounds its error.
  void add_product(double x, double y, double deviation);
  /// All terms are known multiples of 2^`exponent`.
  void set_quantum(int exponent) { quantum_ = exponent; }
  void set_inexact() { all_known_ = false; }
  Uncertain finish(const Accumulation& how) const;

 private:
  bool exact_in(DType dtype, double total) const;

  Compensated value_;
  double below_ = 0, above_ = 0;  // how far the exact sum may be off `value_`
  double magnitude_ = 0;          // sum |x|
  int64_t count_ = 0;
  int64_t nonzero_products_ = 0;  // those that are not zero for certain
  int quantum_ = std::numeric_limits<int>::max();
  bool nan_ = false, anything_ = false, plus_ = false, minus_ = false;
  bool all_known_ = true, has_products_ = false, may_be_negative_ = false;
};

/// Product of factors in any order.
class UncertainProduct {
 public:
  void multiply(const Uncertain& x);
  Uncertain finish(const Accumulation& how) const;

 private:
  Compensated value_{1, 0};
  double centre_ = 1, magnitude_ = 1;  // products of |value| and of max |x|
  double largest_ = 1, smallest_ = 1;  // bounds of all partial products
  double odd_ = 1;                     // product of the factors without their powers of two
  int64_t count_ = 0;
  bool nan_ = false, anything_ = false, infinite_ = false, zero_ = false;
  bool all_known_ = true, may_be_negative_ = false;
};

/// The exponent of the lowest set bit of `x`; INT_MAX for zero, infinities and NaN.
int lowest_bit(double x);

}  // namespace braze
