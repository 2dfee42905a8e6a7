// rows.h — math and formula rows as machine rows.
#pragma once

#include <vector>

#include "ir/code/code.h"

namespace braze {

/// Appends the body of a math or formula row on operands of `dtype`; returns its value.
ValueOperand emit_body(CodeBuilder& builder, ElementwiseOp op,
                       const std::vector<ValueOperand>& operands, DType dtype);

/// Appends the body of a math row on 16-bit arguments, given in f32; the f32 result is still to be
/// rounded to `dtype`.
ValueOperand emit_half_body(CodeBuilder& builder, ElementwiseOp op,
                            const std::vector<ValueOperand>& operands, DType dtype);

}  // namespace braze
