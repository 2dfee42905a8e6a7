// elementwise.h — the table of elementwise ops that elementwise.def declares.
//
// Everything that knows an elementwise op reads this table: builder, text, interpreters, folding,
// autodiff, code generators, the op reference and the test generator.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "braze/dtype.h"
#include "ir/ops/scalar.h"

namespace braze {

enum class ElementwiseOp : uint8_t {
#define MACHINE(name, ...) name,
#define MATH(name, ...) name,
#define FORMULA(name, ...) name,
#include "ir/ops/elementwise.def"
#undef MACHINE
#undef MATH
#undef FORMULA
};

/// How a row gets its meaning on a machine; see elementwise.def.
enum class OpClass : uint8_t { Machine, Math, Formula };
/// How the dtype of the result follows from the dtype of the operands.
enum class ResultRule : uint8_t { Same, Boolean, Chosen };

struct Gradients {
  std::array<Scalar, 3> of;  ///< of each operand; a null Scalar means none
};

struct ElementwiseInfo {
  std::string_view name;
  OpClass op_class;
  uint8_t arity;
  TypeSet types;
  ResultRule result;
  std::string_view meaning;  ///< one line for people
  /// Builds the body over other rows. Null for machine rows. Of x, y and z, those beyond the arity
  /// are null. For math rows, x is f32 or f64.
  Scalar (*body)(const Scalar& x, const Scalar& y, const Scalar& z);
  /// Builds the body for 16-bit floats: of math rows, and on bf16 of some formula rows. x and y are
  /// the arguments in f32 (y is null for rows with one operand). The result is an f32 that rounds
  /// to the correctly rounded value of `dtype`. Null for other rows.
  Scalar (*half_body)(const Scalar& x, const Scalar& y, DType dtype);
  /// Builds the gradients. Null if they are zero by definition, or if `through_body`.
  Gradients (*gradient)(const Scalar& g, const Scalar& r, const Scalar& x, const Scalar& y,
                        const Scalar& z);
  bool through_body;
  /// Whether only bodies may use the row, and graphs may not.
  bool inner;
};

/// The number of machine rows; they come first in the enumeration.
inline constexpr size_t kMachineOpCount = 0
#define MACHINE(...) +1
#define MATH(...)
#define FORMULA(...)
#include "ir/ops/elementwise.def"
#undef MACHINE
#undef MATH
#undef FORMULA
    ;

std::span<const ElementwiseInfo> elementwise_table();
const ElementwiseInfo& info(ElementwiseOp op);
inline std::string_view name(ElementwiseOp op) { return info(op).name; }
std::optional<ElementwiseOp> parse_elementwise(std::string_view text);
/// Whether the row has a `half_body` for this dtype.
bool has_half_body(ElementwiseOp op, DType dtype);
/// The dtype in which the body of a formula row defines its result on `dtype`.
DType body_type(ElementwiseOp op, DType dtype);
constexpr bool is_machine(ElementwiseOp op) { return static_cast<size_t>(op) < kMachineOpCount; }

/// A table with one entry for each machine row. It does not compile if a row has no entry.
template <class Entry>
class MachineTable {
 public:
  consteval MachineTable(std::initializer_list<std::pair<ElementwiseOp, Entry>> list) {
    for (const auto& [op, entry] : list) rows_[static_cast<size_t>(op)] = entry;
    for (const auto& entry : rows_)
      if (!entry) throw "machine op without an entry";
  }
  constexpr const Entry& operator[](ElementwiseOp op) const {
    return rows_[static_cast<size_t>(op)];
  }

 private:
  std::array<Entry, kMachineOpCount> rows_{};
};

/// The value of a machine row on element bits. This is the definition that every target must match.
/// The dtype of the operands is `operand` (of y and z for select), and that of the result is
/// `result`. 16-bit floats are computed in f32 and rounded once.
uint64_t evaluate_machine(ElementwiseOp op, DType operand, DType result, uint64_t x, uint64_t y = 0,
                          uint64_t z = 0);

/// Applies a row to scalars. The dtype of the result follows from the row (for Chosen rows, use
/// `convert` and `bitcast`). It is an internal error if the operands do not fit the row.
Scalar emit_elementwise(ElementwiseOp op, std::span<const Scalar> operands);

// One function for each row: add(x, y), select(c, a, b), exp(x), silu(x) ...
#define BRAZE_SCALAR_1(op) \
  inline Scalar op(const Scalar& x) { return emit_elementwise(ElementwiseOp::op, {{x}}); }
#define BRAZE_SCALAR_2(op)                                \
  inline Scalar op(const Scalar& x, const Scalar& y) {    \
    return emit_elementwise(ElementwiseOp::op, {{x, y}}); \
  }
#define BRAZE_SCALAR_3(op)                                              \
  inline Scalar op(const Scalar& x, const Scalar& y, const Scalar& z) { \
    return emit_elementwise(ElementwiseOp::op, {{x, y, z}});            \
  }
#define BRAZE_SCALAR_Same(op, arity) BRAZE_SCALAR_##arity(op)
#define BRAZE_SCALAR_Boolean(op, arity) BRAZE_SCALAR_##arity(op)
#define BRAZE_SCALAR_Chosen(op, arity)
#define MACHINE(op, arity, types, result, ...) BRAZE_SCALAR_##result(op, arity)
#define MATH(op, arity, ...) BRAZE_SCALAR_##arity(op)
#define FORMULA(op, arity, ...) BRAZE_SCALAR_##arity(op)
#include "ir/ops/elementwise.def"
#undef MACHINE
#undef MATH
#undef FORMULA

// The logical rows under the names that are usual for integers.
inline Scalar bit_and(const Scalar& x, const Scalar& y) { return logical_and(x, y); }
inline Scalar bit_or(const Scalar& x, const Scalar& y) { return logical_or(x, y); }
inline Scalar bit_xor(const Scalar& x, const Scalar& y) { return logical_xor(x, y); }

}  // namespace braze
