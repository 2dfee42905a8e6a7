// scalar.h — scalar expressions that are built into any emitter.
//
// Bodies and gradients of elementwise ops are written once, as C++ expressions over `Scalar`. The
// emitter decides what an operation becomes: a graph node (expand, autodiff), a kernel instruction
// (lowering), or a value (folding). A literal takes the dtype of the Scalar beside it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "braze/dtype.h"

namespace braze {

enum class ElementwiseOp : uint8_t;  // elementwise.h

class ScalarEmitter;

/// One value that an emitter holds. Copying copies the handle.
class Scalar {
 public:
  Scalar() = default;
  Scalar(ScalarEmitter* emitter, uint32_t id, DType dtype)
      : emitter_(emitter), id_(id), dtype_(dtype) {}

  ScalarEmitter* emitter() const { return emitter_; }
  uint32_t id() const { return id_; }
  DType dtype() const { return dtype_; }
  explicit operator bool() const { return emitter_ != nullptr; }

  /// A constant: `value` rounded once to this scalar's dtype.
  Scalar constant(double value) const;
  /// The constant of `dtype` with these bits.
  Scalar constant_bits(DType dtype, uint64_t bits) const;

 private:
  ScalarEmitter* emitter_ = nullptr;
  uint32_t id_ = 0;
  DType dtype_ = DType::F32;
};

class ScalarEmitter {
 public:
  virtual ~ScalarEmitter() = default;
  virtual Scalar constant(DType dtype, uint64_t bits) = 0;
  /// The operands have equal dtypes, except where the op says otherwise (as select does). `result`
  /// is the dtype of the result; only convert and bitcast leave a choice.
  virtual Scalar apply(ElementwiseOp op, std::span<const Scalar> operands, DType result) = 0;
};

// elementwise.h declares one function for each elementwise op (add, exp, silu ...). Operators and
// conversions are declared here:
Scalar operator+(const Scalar& a, const Scalar& b);
Scalar operator-(const Scalar& a, const Scalar& b);
Scalar operator*(const Scalar& a, const Scalar& b);
Scalar operator/(const Scalar& a, const Scalar& b);
Scalar operator-(const Scalar& a);
Scalar operator+(const Scalar& a, double b);
Scalar operator+(double a, const Scalar& b);
Scalar operator-(const Scalar& a, double b);
Scalar operator-(double a, const Scalar& b);
Scalar operator*(const Scalar& a, double b);
Scalar operator*(double a, const Scalar& b);
Scalar operator/(const Scalar& a, double b);
Scalar operator/(double a, const Scalar& b);

Scalar convert(const Scalar& x, DType to);
Scalar bitcast(const Scalar& x, DType to);

/// The bits of `value` rounded once to `dtype` (integers: truncated and saturated).
uint64_t constant_bits(DType dtype, double value);
/// The bits of `value` wrapped to `dtype` (for floats: rounded).
uint64_t constant_bits_int(DType dtype, int64_t value);
/// The value of an element with these bits. It is exact, except for large 64-bit integers.
double bits_to_double(DType dtype, uint64_t bits);
int64_t bits_to_int(DType dtype, uint64_t bits);
/// The decimal text of an element of an integer dtype.
std::string integer_text(DType dtype, uint64_t bits);
/// The bits of an integer, if `dtype`, which is an integer dtype or bool, can represent it.
std::optional<uint64_t> integer_bits(DType dtype, bool negative, uint64_t magnitude);

}  // namespace braze
