#include "ir/graph/uncertain.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "braze/error.h"
#include "ir/graph/interpret.h"
#include "ir/ops/scalar.h"
#include "ir/values/value_of.h"

namespace braze {
namespace {

using Row = ElementwiseOp;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// The error that a reference computed in double may itself have, including that of libm.
constexpr double kReferenceUlps = 2;

struct Format {
  int precision;     // bits of the significand
  int min_exponent;  // of normal numbers
};

Format format(DType dtype) { return {info(dtype).fraction + 1, least_exponent(dtype)}; }

uint64_t as_bits(double x) { return std::bit_cast<uint64_t>(x); }

// The functions of <cmath> for exponents take a large part of the time of a reference: each element
// of each node asks for several ulps.
constexpr int kFractionBits = 52, kExponentBias = 1023;

/// The exponent of `x`, which is finite; -1023 for zeros and subnormal numbers.
int binary_exponent(double x) {
  return static_cast<int>(as_bits(x) >> kFractionBits & 0x7ff) - kExponentBias;
}

/// 2^n as a double, for n from -1074 to 1023.
double power_of_two(int n) {
  const int biased = n + kExponentBias;
  return std::bit_cast<double>(biased > 0 ? uint64_t(biased) << kFractionBits
                                          : uint64_t{1} << (n + kExponentBias + kFractionBits - 1));
}

/// Whether the row compares two numbers.
bool compares(ElementwiseOp op) {
  return info(op).arity == 2 && info(op).result == ResultRule::Boolean;
}

double ulp_in(const Format& f, double x) {
  if (std::isinf(x)) return kInfinity;
  const int exponent =
      std::isnan(x) ? f.min_exponent : std::max(binary_exponent(x), f.min_exponent);
  return power_of_two(exponent - f.precision + 1);
}

double smallest_subnormal(DType dtype) { return ulp(dtype, 0); }

/// Whether the row rounds its exact result, so that implementations may differ where they have
/// leeway. Integers and bools are never rounded.
bool rounds(ElementwiseOp op, DType from, DType to) {
  if (!is_floating(to)) return false;
  switch (op) {
    case Row::add:
    case Row::sub:
    case Row::mul:
    case Row::div:
    case Row::fma:
    case Row::sqrt:
      return true;
    case Row::convert:
      return to != DType::F64 && !(is_short_float(from) && to == DType::F32);
    default:
      return !is_machine(op);
  }
}

RoundingError rounding_error(bool is_math, DType dtype, bool is_convert, bool relaxed) {
  if (is_half(dtype)) {
    if (is_convert) return {0.5, 0};
    if (relaxed) return {0.5, 4};
    return is_math ? RoundingError{0.5, 0} : RoundingError{0.5, 0.5};  // through f32
  }
  if (is_convert) return {0.5, 0};
  if (relaxed) return {4, 0};
  return is_math ? RoundingError{dtype == DType::F64 ? 4.0 : 1.0, 0} : RoundingError{0.5, 0};
}

/// gamma_n = n u / (1 - n u): the relative error of n roundings.
double gamma(int64_t n, double unit) {
  const double nu = static_cast<double>(n) * unit;
  return nu < 1 ? nu / (1 - nu) : kInfinity;
}

}  // namespace

double ulp(DType dtype, double x) { return ulp_in(format(dtype), x); }

int lowest_bit(double x) {
  if (x == 0 || !std::isfinite(x)) return std::numeric_limits<int>::max();
  const uint64_t bits = as_bits(x), fraction = bits & ((uint64_t{1} << kFractionBits) - 1);
  const int exponent = std::max(binary_exponent(x), 1 - kExponentBias);
  const int unset = fraction == 0 ? kFractionBits : std::countr_zero(fraction);
  return exponent - kFractionBits + unset;
}

Uncertain Uncertain::exactly(DType dtype, uint64_t bits) {
  Uncertain x{true, bits};
  if (is_floating(dtype)) x.value = x.low = x.high = bits_to_double(dtype, bits);
  return x;
}

Uncertain Uncertain::between(double value, double low, double high) {
  return {false, 0, std::clamp(value, low, high), low, high};
}

Uncertain Uncertain::anything(double estimate) {
  return {false, 0, estimate, -kInfinity, kInfinity};
}

double Uncertain::radius() const { return known ? 0 : std::max(high - value, value - low); }

Uncertain rounded(const Uncertain& x, DType dtype, RoundingError error, bool relaxed) {
  // If a factor is rounded before or after a scaling, it lies elsewhere between two powers of two,
  // where an ulp can be a relative error that is up to twice as large.
  const auto unit = [relaxed](const Format& f, double at) {
    return relaxed ? std::max(ulp_in(f, 0), std::abs(at) * power_of_two(1 - f.precision))
                   : ulp_in(f, at);
  };
  const Format own = format(dtype), f32 = format(DType::F32), f64 = format(DType::F64);
  const auto slack = [&](double at) {
    double out = error.ulps * unit(own, at) + kReferenceUlps * ulp_in(f64, at);
    if (error.f32_ulps > 0) out += error.f32_ulps * unit(f32, at);
    return out;
  };
  // If rounding crosses a power of two, the ulp beyond the power counts.
  const auto reach = [&](double at) { return slack(std::abs(at) + slack(at)); };
  double low = x.low - reach(x.low), high = x.high + reach(x.high);
  if (x.low >= 0) low = std::max(low, 0.0);  // rounding does not cross zero
  if (x.high <= 0) high = std::min(high, 0.0);

  const double limit = overflow_threshold(dtype);
  if (!relaxed && (low >= limit || high <= -limit))
    return Uncertain::exactly(dtype, constant_bits(dtype, x.value > 0 ? kInfinity : -kInfinity));
  if (!(low > -limit && high < limit)) return Uncertain::anything(x.value);
  return Uncertain::between(x.value, low, high);
}

UncertainRow::UncertainRow(ElementwiseOp op, DType operand, DType result, bool relaxed)
    : op_(op),
      operand_(operand),
      result_(result),
      relaxed_(relaxed),
      arity_(info(op).arity),
      is_math_(!is_machine(op)),
      rounds_(rounds(op, operand, result)),
      exact_(is_math_ ? nullptr : machine_function(op, operand, result)),
      in_double_(is_math_ ? nullptr
                          : machine_function(
                                op, DType::F64,
                                info(op).result == ResultRule::Same ? DType::F64 : DType::Bool)) {
  BRAZE_CHECK(is_math_ || exact_, "no such row");
}

Uncertain UncertainRow::operator()(const Uncertain& x, const Uncertain& y,
                                   const Uncertain& z) const {
  const Uncertain* const operands[3] = {&x, &y, &z};
  bool all_known = !is_math_;
  for (size_t i = 0; i < arity_; ++i) all_known &= operands[i]->known;
  const bool nan_bits =
      op_ == Row::bitcast && std::isnan(x.value);  // it is not promised which NaN this is
  if (all_known && !nan_bits && !(relaxed_ && rounds_))
    return Uncertain::exactly(result_, exact_(x.bits, y.bits, z.bits));

  if (op_ == Row::select) return select(x, y, z);
  if (op_ == Row::bitcast && operand_ == result_) return x;
  if (op_ == Row::convert && x.known && is_floating(result_)) return relaxed_convert(x);
  if (!is_floating(operand_)) return of_unknown_integers(operands);
  if (compares(op_)) return compare(x, y);
  if (op_ == Row::is_nan)
    return x.is_anything() ? Uncertain::guess(0)
                           : Uncertain::exactly(DType::Bool, std::isnan(x.value));
  if (op_ == Row::bitcast)
    return is_floating(result_) ? Uncertain::anything(x.value) : Uncertain::guess(0);
  if (op_ == Row::convert && !is_floating(result_)) return to_integer(x);
  return real(operands);
}

Uncertain UncertainRow::select(const Uncertain& condition, const Uncertain& y,
                               const Uncertain& z) const {
  if (condition.known) return condition.bits ? y : z;
  if (y.known && z.known && y.bits == z.bits) return y;
  const Uncertain& guess = condition.bits ? y : z;
  if (!is_floating(result_)) return Uncertain::guess(guess.bits);
  const double low = std::min(y.low, z.low), high = std::max(y.high, z.high);
  if (!std::isfinite(low) || !std::isfinite(high) || std::isnan(y.value) || std::isnan(z.value))
    return Uncertain::anything(guess.value);
  return Uncertain::between(guess.value, low, high);
}

/// The result for operands that may be unknown bools or integers. An unknown bool is one of two
/// values; an unknown integer can be anything.
Uncertain UncertainRow::of_unknown_integers(const Uncertain* const operands[3]) const {
  uint64_t bits[3] = {};
  for (size_t i = 0; i < arity_; ++i) bits[i] = operands[i]->bits;
  const uint64_t guess = exact_(bits[0], bits[1], bits[2]);
  const double estimate = is_floating(result_) ? bits_to_double(result_, guess) : 0;
  if (operand_ != DType::Bool)
    return is_floating(result_) ? Uncertain::anything(estimate) : Uncertain::guess(guess);

  bool same = true;
  for (unsigned choice = 0; choice < 4; ++choice) {
    for (size_t i = 0; i < arity_; ++i)
      if (!operands[i]->known) bits[i] = choice >> i & 1;
    same &= exact_(bits[0], bits[1], bits[2]) == guess;
  }
  if (same) return Uncertain::exactly(result_, guess);
  return is_floating(result_) ? Uncertain::between(estimate, 0, 1) : Uncertain::guess(guess);
}

Uncertain UncertainRow::compare(const Uncertain& x, const Uncertain& y) const {
  const auto holds = [&](double left, double right) {
    return in_double_(as_bits(left), as_bits(right), 0);
  };
  const uint64_t guess = holds(x.value, y.value);
  const bool has_nan = (std::isnan(x.value) && x.known) || (std::isnan(y.value) && y.known);
  if (has_nan) return Uncertain::exactly(DType::Bool, guess);
  if (x.is_anything() || y.is_anything()) return Uncertain::guess(guess);
  if (&x == &y) return Uncertain::exactly(DType::Bool, guess);  // both are the same value
  const bool apart = x.high < y.low || y.high < x.low;
  const bool one_point = x.low == x.high && y.low == y.high;  // -0 and +0 count as one point
  // An order changes at most once while x - y grows, so both ends tell what holds between them.
  // Equality holds in the middle alone.
  const bool is_order = op_ != Row::eq && op_ != Row::ne;
  const bool ends_agree = is_order && holds(x.low, y.high) == holds(x.high, y.low);
  return apart || one_point || ends_agree ? Uncertain::exactly(DType::Bool, guess)
                                          : Uncertain::guess(guess);
}

Uncertain UncertainRow::to_integer(const Uncertain& x) const {
  const auto of = [&](double value) { return constant_bits(result_, value); };
  if (x.is_anything()) return Uncertain::guess(of(x.value));
  if (result_ == DType::Bool && x.may_be(0) && x.low != x.high)
    return Uncertain::guess(of(x.value));
  // Truncation is monotone, so the result is known if both ends give the same.
  return of(x.low) == of(x.high) ? Uncertain::exactly(result_, of(x.value))
                                 : Uncertain::guess(of(x.value));
}

/// A known number in a format to which it may or may not be rounded.
Uncertain UncertainRow::relaxed_convert(const Uncertain& x) const {
  const double value = is_floating(operand_) ? x.value : bits_to_double(operand_, x.bits);
  const uint64_t bits = exact_(x.bits, 0, 0);
  if (!(std::abs(bits_to_double(result_, bits) - value) > 0))
    return Uncertain::exactly(result_, bits);
  return rounded(Uncertain::between(value, value, value), result_, {0.5, 0}, true);
}

double UncertainRow::at(double x, double y, double z) const {
  if (is_math_) return evaluate_math(op_, x, y);
  if (op_ == Row::convert) return x;
  return std::bit_cast<double>(in_double_(as_bits(x), as_bits(y), as_bits(z)));
}

/// A row from floats to a float. Except for those that are named here, rows are monotone in each
/// operand for any value of the others. Then the corners of the operands' intervals give the ends
/// of the result's interval.
Uncertain UncertainRow::real(const Uncertain* const operands[3]) const {
  const Uncertain &x = *operands[0], &y = *operands[1], &z = *operands[2];
  if (op_ == Row::pow) return power(operands);
  const double value = at(x.value, y.value, z.value);
  for (size_t i = 0; i < arity_; ++i)
    if (operands[i]->known && std::isnan(operands[i]->value))
      return Uncertain::exactly(result_, constant_bits(result_, kNaN));
  for (size_t i = 0; i < arity_; ++i)
    if (operands[i]->is_anything()) return Uncertain::anything(value);
  if ((op_ == Row::div || op_ == Row::rem) && !y.known && y.may_be(0)) {
    const auto is_zero = [](const Uncertain& u) { return u.low == 0 && u.high == 0; };
    return is_zero(x) && is_zero(y) ? Uncertain::exactly(result_, constant_bits(result_, kNaN))
                                    : Uncertain::anything(value);
  }
  if (op_ == Row::rem && !std::isinf(x.value)) return remainder(x, y);
  if ((op_ == Row::sin || op_ == Row::cos) && !std::isinf(x.value)) return sine_or_cosine(x);
  return of_corners(operands);
}

/// The result of a row that is monotone in each operand within the operands' intervals.
Uncertain UncertainRow::of_corners(const Uncertain* const operands[3]) const {
  const Uncertain &x = *operands[0], &y = *operands[1], &z = *operands[2];
  const double value = at(x.value, y.value, z.value);
  bool infinite_operand = false;
  for (size_t i = 0; i < arity_; ++i)
    infinite_operand |= operands[i]->known && std::isinf(operands[i]->value);
  double low = kInfinity, high = -kInfinity;
  unsigned nans = 0;
  const unsigned corners = 1u << arity_;
  for (unsigned corner = 0; corner < corners; ++corner) {
    const auto end = [&](const Uncertain& u, int i) { return corner >> i & 1 ? u.high : u.low; };
    const double r = at(end(x, 0), end(y, 1), end(z, 2));
    nans += std::isnan(r);
    low = std::min(low, std::isnan(r) ? kInfinity : r);
    high = std::max(high, std::isnan(r) ? -kInfinity : r);
  }
  if (nans == corners) return Uncertain::exactly(result_, constant_bits(result_, kNaN));
  if (nans > 0) return Uncertain::anything(value);
  if (op_ == Row::abs && x.may_be(0)) low = 0;
  return settle(value, low, high, infinite_operand);
}

/// The result of a row whose exact result lies in [low, high], rounded if the row rounds.
Uncertain UncertainRow::settle(double value, double low, double high, bool infinite_operand) const {
  if (std::isinf(low) || std::isinf(high)) {
    const bool certain = low == high && (infinite_operand || !relaxed_);
    return certain ? Uncertain::exactly(result_, constant_bits(result_, low))
                   : Uncertain::anything(value);
  }
  if (rounds_)
    return rounded(Uncertain::between(value, low, high), result_,
                   rounding_error(is_math_, result_, op_ == Row::convert, relaxed_), relaxed_);
  if (low == high && low != 0 && !relaxed_)
    return Uncertain::exactly(result_, constant_bits(result_, low));
  return Uncertain::between(value, low, high);
}

Uncertain UncertainRow::remainder(const Uncertain& x, const Uncertain& y) const {
  if (y.value == 0) return Uncertain::exactly(result_, constant_bits(result_, kNaN));
  double low = kInfinity, high = -kInfinity;  // of the quotient
  for (const double numerator : {x.low, x.high})
    for (const double denominator : {y.low, y.high}) {
      low = std::min(low, numerator / denominator);
      high = std::max(high, numerator / denominator);
    }
  low -= ulp(DType::F64, low);
  high += ulp(DType::F64, high);
  const double value = std::fmod(x.value, y.value);
  if (std::trunc(low) == std::trunc(high)) {  // x - y * quotient
    const double radius = x.radius() + std::abs(std::trunc(low)) * y.radius();
    const double slack = 4 * ulp(DType::F64, std::abs(value) + radius);
    return Uncertain::between(value, value - radius - slack, value + radius + slack);
  }
  const double limit = std::min(std::max(-y.low, y.high), std::max(-x.low, x.high));
  return Uncertain::between(value, x.low < 0 ? -limit : 0, x.high > 0 ? limit : 0);
}

/// The slope of a sine or cosine is at most 1, so the interval does not grow.
Uncertain UncertainRow::sine_or_cosine(const Uncertain& x) const {
  const double value = evaluate_math(op_, x.value), radius = x.radius();
  return settle(value, std::max(value - radius, -1.0), std::min(value + radius, 1.0), false);
}

/// x^y is monotone in both operands if x is positive, and in x alone on each side of 0. If the sign
/// or a NaN depends on something that is not known, nothing is promised.
Uncertain UncertainRow::power(const Uncertain* const operands[3]) const {
  const Uncertain &x = *operands[0], &y = *operands[1];
  const double value = at(x.value, y.value, 0);
  if (x.known && y.known) return of_corners(operands);
  const bool positive = x.low > 0 || (x.low == 0 && y.low >= 0);
  const bool one_sign = positive || (y.known && x.high < 0);
  const bool may_be_nan = x.is_anything() || y.is_anything() || std::isnan(y.value);
  return one_sign && !may_be_nan ? of_corners(operands) : Uncertain::anything(value);
}

void UncertainSum::add(const Uncertain& x) {
  ++count_;
  all_known_ &= x.known;
  if (x.is_anything()) {
    anything_ = true;
  } else if (std::isnan(x.value)) {
    nan_ = true;
  } else if (std::isinf(x.value)) {
    (x.value > 0 ? plus_ : minus_) = true;
  } else {
    value_.add(x.value);
    below_ += x.value - x.low;
    above_ += x.high - x.value;
    magnitude_ += std::max(std::abs(x.low), std::abs(x.high));
    may_be_negative_ |= x.low < 0;
    quantum_ = std::min(quantum_, lowest_bit(x.value));
  }
}

/// Whether every partial sum, in any order, is a number of `dtype`: all of them are multiples of
/// one power of two, and none is too large.
bool UncertainSum::exact_in(DType dtype, double total) const {
  const Format f = format(dtype);
  if (!all_known_ || total == 0) return all_known_;
  return quantum_ >= f.min_exponent - f.precision + 1 &&
         std::ldexp(total, -quantum_) <= std::ldexp(1.0, f.precision);
}

Uncertain UncertainSum::finish(const Accumulation& how) const {
  const double value = value_.value();
  if (nan_ || (plus_ && minus_))
    return Uncertain::exactly(how.result, constant_bits(how.result, kNaN));
  if (anything_) return Uncertain::anything(value);

  // The bounds themselves were summed with roundings.
  const double inflate = 1 + gamma(count_ + 2, 0x1p-53);
  const double total = magnitude_ * inflate;
  const double growth = gamma(has_products_ ? count_ : std::max<int64_t>(count_ - 1, 0), how.unit);
  if (!(total * (1 + growth) < overflow_threshold(how.accumulator) && total < kInfinity))
    return Uncertain::anything(plus_ || minus_ ? kNaN : value);
  if (plus_ || minus_)
    return Uncertain::exactly(how.result,
                              constant_bits(how.result, plus_ ? kInfinity : -kInfinity));

  const bool narrow = is_half(how.result);
  const bool exact = exact_in(how.accumulator, total);
  if (exact && value != 0 && !(narrow && how.relaxed))
    return Uncertain::exactly(how.result, constant_bits(how.result, value));
  double error = 0;
  if (!exact && total > 0) error = growth * total + kReferenceUlps * ulp(DType::F64, value);
  if (!exact)  // products may underflow
    error += static_cast<double>(nonzero_products_) * smallest_subnormal(how.accumulator);
  double low = value - below_ * inflate - error, high = value + above_ * inflate + error;
  if (!may_be_negative_) low = std::max(low, 0.0);
  const Uncertain sum = Uncertain::between(value, low, high);
  return narrow ? rounded(sum, how.result, {0.5, 0}, how.relaxed) : sum;
}

void UncertainProduct::multiply(const Uncertain& x) {
  ++count_;
  all_known_ &= x.known;
  if (x.is_anything()) {
    anything_ = true;
  } else if (std::isnan(x.value)) {
    nan_ = true;
  } else {
    const double radius = x.radius(), magnitude = std::abs(x.value) + radius;
    infinite_ |= std::isinf(x.value);
    zero_ |= x.value == 0;
    value_.multiply(x.value);
    centre_ *= std::abs(x.value);
    magnitude_ *= magnitude;
    largest_ *= std::max(1.0, magnitude);
    smallest_ *= std::min(1.0, std::max(0.0, std::abs(x.value) - radius));
    may_be_negative_ |= x.low < 0;
    if (x.value != 0 && std::isfinite(x.value))
      odd_ *= std::ldexp(std::abs(x.value), -lowest_bit(x.value));
  }
}

Uncertain UncertainProduct::finish(const Accumulation& how) const {
  const double value = value_.value();
  const Format f = format(how.accumulator);
  const auto exactly = [&](double x) {
    return Uncertain::exactly(how.result, constant_bits(how.result, x));
  };
  if (nan_) return exactly(kNaN);
  // Whether no partial product is below the normal numbers.
  const bool no_underflow = smallest_ >= std::ldexp(1.0, f.min_exponent);
  if (anything_) return Uncertain::anything(value);
  if (infinite_) {
    // Infinity times zero is NaN in any order. If a partial product underflows to zero, the result
    // is NaN in some orders only.
    if (all_known_ && zero_) return exactly(kNaN);
    return all_known_ && no_underflow ? exactly(value) : Uncertain::anything(value);
  }
  const double growth = gamma(count_, how.unit), own = gamma(count_ + 2, 0x1p-53);
  if (!(largest_ * (1 + growth + own) < overflow_threshold(how.accumulator) &&
        largest_ < kInfinity))
    return Uncertain::anything(value);

  const bool narrow = is_half(how.result);
  const bool exact = all_known_ && no_underflow && odd_ <= std::ldexp(1.0, f.precision);
  if (exact && !(narrow && how.relaxed)) return exactly(value);
  double error = (magnitude_ - centre_) + 2 * own * magnitude_;
  if (!exact)
    error += growth * magnitude_ +
             static_cast<double>(count_) * smallest_subnormal(how.accumulator) * largest_;
  const double low = may_be_negative_ ? value - error : std::max(value - error, 0.0);
  const Uncertain product = Uncertain::between(value, low, value + error);
  return narrow ? rounded(product, how.result, {0.5, 0}, how.relaxed) : product;
}

}  // namespace braze
