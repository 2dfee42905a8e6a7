// nvrtc_p.h — Kernel IR as CUDA C++, which is the second way to make code for NVIDIA GPUs.
//
//   cuda_text.cpp   Kernel -> CUDA C++
//   cuda_rows.cpp   machine rows -> expressions
//   nvrtc.cpp       CUDA C++ -> PTX, through NVRTC opened at run time
#pragma once

#include <string>
#include <vector>

#include "ir/code/code.h"

namespace braze::codegen {

/// The text at the beginning of every kernel.
std::string cuda_preamble();
/// The C++ type of an element. f16 and bf16 are represented by their bits.
std::string_view cuda_type(DType dtype);
/// A literal of an element with these bits.
std::string cuda_literal(DType dtype, uint64_t bits);
/// A machine row on operands that are names or literals; `operand` is their dtype (of y and z for
/// select).
std::string cuda_row(ElementwiseOp op, DType operand, DType result,
                     const std::vector<std::string>& operands);

}  // namespace braze::codegen
