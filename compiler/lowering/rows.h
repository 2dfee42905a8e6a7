// rows.h — the expansion of math and formula rows to machine rows.
#pragma once

#include <vector>

#include "ir/code/code.h"

namespace braze {

/// Appends the body of a math or formula row on operands of `dtype`, and returns its value.
ValueOperand emit_body(CodeBuilder& builder, ElementwiseOp op,
                       const std::vector<ValueOperand>& operands, DType dtype);

/// Appends the body of a math row on 16-bit arguments, which are given in f32. The f32 result must
/// still be rounded to `dtype`.
ValueOperand emit_half_body(CodeBuilder& builder, ElementwiseOp op,
                            const std::vector<ValueOperand>& operands, DType dtype);

/// Appends the short body of a formula row on an f32.
ValueOperand emit_short_body(CodeBuilder& builder, ElementwiseOp op, const ValueOperand& operand);

/// Appends the coarse body of a row on an f32.
ValueOperand emit_coarse_body(CodeBuilder& builder, ElementwiseOp op, const ValueOperand& operand);

/// Appends the approximate 2^x of an f32 that processors without a unit for it compute.
ValueOperand emit_approximate_power(CodeBuilder& builder, const ValueOperand& operand);

}  // namespace braze
