// machine_semantics.h — the meaning of every machine row, on the bits of every dtype.
//
// This is the definition that interpreters run and that every target must match. Nothing here is
// undefined: integers wrap, x / 0 is 0, and shifts beyond the width and conversions out of range
// have a value. 16-bit floats are computed in f32 and rounded once; conversions round once from the
// exact value. A NaN that arithmetic makes is the positive quiet NaN without payload. neg, abs,
// select and bitcast keep the bits of a NaN (neg and abs change its sign bit).
#pragma once

#include <cstdint>

#include "braze/dtype.h"
#include "ir/ops/elementwise.h"

namespace braze {

/// Elements are passed as their bits, zero-extended. Operands beyond the arity are ignored.
using MachineFunction = uint64_t (*)(uint64_t x, uint64_t y, uint64_t z);

/// The meaning of a machine row on operands of dtype `operand` (of y and z for select) with a
/// result of dtype `result`. Null where the row is not defined. Look it up once, and call it for
/// each element.
MachineFunction machine_function(ElementwiseOp op, DType operand, DType result);

/// The dtype of the row's result on operands of dtype `operand`; `chosen` for Chosen rows.
constexpr DType result_dtype(ResultRule rule, DType operand, DType chosen) {
  return rule == ResultRule::Same ? operand : rule == ResultRule::Boolean ? DType::Bool : chosen;
}

/// Whether all bits of an element of one dtype are an element of the other. This does not hold for
/// bool, which is only 0 or 1.
constexpr bool have_same_bits(DType a, DType b) {
  return a == b || (size_of(a) == size_of(b) && a != DType::Bool && b != DType::Bool);
}

}  // namespace braze
