// combiner.h — what combines the elements of a scan.
//
// The elements of a scan are tuples of values. A combiner is a monoid, whose tuples have one value,
// or a body: an expression over the op table for each part of the result, over the parts x0, x1, ..
// of the tuple on the left and the parts y0, y1, .. of the tuple on the right. For example,
// `from (f32 1, f32 0) by (mul(x0, y0), fma(x1, y0, y1))` makes h[t] = a[t] * h[t - 1] + b[t] of
// tuples (a, b). A body must be associative, because implementations choose the order in which
// they combine. Nobody can check this, so it is the user's promise.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ir/ops/monoid.h"
#include "ir/support/scanner.h"

namespace braze {

/// One operation of a combiner's body. Operations are numbered in order.
struct CombinerStep {
  enum class Kind : uint8_t {
    Left,      ///< part `part` of the left tuple
    Right,     ///< part `part` of the right tuple
    Constant,  ///< `bits` of `dtype`
    Apply,     ///< `op`, a machine or math row, applied to earlier steps
  };
  Kind kind = Kind::Apply;
  DType dtype = DType::F32;
  uint32_t part = 0;
  uint64_t bits = 0;
  ElementwiseOp op{};
  std::vector<uint32_t> arguments = {};
  friend bool operator==(const CombinerStep&, const CombinerStep&) = default;
};

struct CombinerBody {
  /// The dtype in which each part is combined: f32 for parts that are 16-bit floats.
  std::vector<DType> dtypes;
  /// The bits of each part of the tuple that changes nothing.
  std::vector<uint64_t> identity;
  std::vector<CombinerStep> steps;
  std::vector<uint32_t> results;  ///< for each part, the number of a step
  friend bool operator==(const CombinerBody&, const CombinerBody&) = default;

  /// Adds a step, or finds an equal one, and returns its number.
  uint32_t add(CombinerStep step);
};

/// The most parts of a tuple, and the most steps of a body.
inline constexpr size_t kMostCombinerParts = 16;
inline constexpr size_t kMostCombinerSteps = 256;

class Combiner {
 public:
  Combiner(Monoid monoid = Monoid::Sum) : monoid_(monoid) {}  // NOLINT: implicit on purpose
  /// Fails with InvalidArgument if the body is not well formed.
  explicit Combiner(CombinerBody body);

  /// Null if the combiner is a monoid.
  const CombinerBody* body() const { return body_.get(); }
  /// Nullopt if the combiner is a body.
  std::optional<Monoid> monoid() const {
    return body_ ? std::nullopt : std::optional<Monoid>(monoid_);
  }
  bool is(Monoid monoid) const { return !body_ && monoid_ == monoid; }
  size_t parts() const { return body_ ? body_->dtypes.size() : 1; }

  /// The dtype in which a part is combined, if its elements are of `dtype`.
  DType accumulation(size_t part, DType dtype) const;
  /// The bits of a part of the neutral tuple.
  uint64_t identity(size_t part, DType dtype) const;
  /// Those that also keep negative zeros.
  uint64_t padding(size_t part, DType dtype) const;

  /// "sum", or "from (..) by (..)".
  std::string to_string() const;
  uint64_t hash() const;
  friend bool operator==(const Combiner& a, const Combiner& b);

  /// The combination of two tuples. `apply(op, arguments, dtype)` makes the value of a row, whose
  /// dtype is that of the step (for a monoid: nullopt, that of its operands), and `literal(dtype,
  /// bits)` that of a constant.
  template <class Value, class Apply, class Literal>
  std::vector<Value> combine(const std::vector<Value>& left, const std::vector<Value>& right,
                             Apply&& apply, Literal&& literal) const {
    if (!body_)
      return {apply(info(monoid_).combine, std::vector<Value>{left[0], right[0]},
                    std::optional<DType>())};
    std::vector<Value> values, out;
    values.reserve(body_->steps.size());
    for (const CombinerStep& step : body_->steps) {
      std::vector<Value> arguments;
      switch (step.kind) {
        case CombinerStep::Kind::Left:
          values.push_back(left[step.part]);
          break;
        case CombinerStep::Kind::Right:
          values.push_back(right[step.part]);
          break;
        case CombinerStep::Kind::Constant:
          values.push_back(literal(step.dtype, step.bits));
          break;
        case CombinerStep::Kind::Apply:
          for (const uint32_t a : step.arguments) arguments.push_back(values[a]);
          values.push_back(apply(step.op, std::move(arguments), std::optional<DType>(step.dtype)));
          break;
      }
    }
    for (const uint32_t result : body_->results) out.push_back(values[result]);
    return out;
  }

 private:
  Monoid monoid_;
  std::shared_ptr<const CombinerBody> body_;
};

/// The number of a step of `body` that applies a row to earlier steps. A formula row becomes its
/// body, and a row of constants a constant. Fails with InvalidArgument if the row does not take
/// these steps.
uint32_t add_row(CombinerBody& body, ElementwiseOp op, const std::vector<uint32_t>& arguments);

/// The combiner of h[t] = a[t] * h[t - 1] + b[t], whose elements are the pairs (a, b). Part 1 is h.
/// It has products of a and sums of a's products with b; where the dtype is floating, each such sum
/// is rounded once.
Combiner linear_recurrence(DType dtype);

/// Reads what `to_string` writes. Formula rows may be written too.
Combiner parse_combiner(Scanner& scanner);

}  // namespace braze
