// rows.h — math and formula rows as machine rows.
#pragma once

#include <vector>

#include "ir/code/code.h"

namespace braze {

/// Appends the body of a math or formula row on operands of `dtype`; returns its value.
Operand emit_body(CodeBuilder& builder, ElementwiseOp op, const std::vector<Operand>& operands, DType dtype);

}  // namespace braze
