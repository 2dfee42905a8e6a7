// llvm_p.h — what the files of this folder share. LLVM's own headers stay in the .cpp files.
//
//   translate.cpp   Kernel -> llvm::Module: phases, loops, accesses, index expressions
//   rows.cpp        machine rows -> instructions
//   optimize.cpp    the passes over LLVM IR
//   image.cpp       target machine, object, image; the interface of code_generator.h
#pragma once

#include <memory>
#include <span>

#include "ir/code/code.h"
#include "ir/target/target.h"

namespace llvm {
class Constant;
class IRBuilderBase;
class LLVMContext;
class Module;
class TargetMachine;
class Type;
class Value;
}  // namespace llvm

namespace braze::codegen {

/// What the code generator asks of a machine beyond its registers' width.
struct Machine {
  bool avx512 = false;  ///< F, BW, DQ, VL: mask registers for every element size
  int vector_bytes = 32;
};

/// How a value of dtype x lanes stands in registers: bool is i1, f16 and bf16 are their bits as
/// i16; one lane is a scalar.
llvm::Type* register_type(llvm::LLVMContext& context, DType dtype, int32_t lanes);
/// The same in memory, where bool is a byte.
llvm::Type* memory_type(llvm::LLVMContext& context, DType dtype, int32_t lanes);
/// An element's bits in every lane.
llvm::Constant* literal(llvm::LLVMContext& context, DType dtype, uint64_t bits, int32_t lanes);

/// Emits a machine row on operands in registers, with the semantics of machine_semantics.h.
/// `operand` is the dtype of the operands (of y and z for select).
llvm::Value* emit_row(llvm::IRBuilderBase& builder, const Machine& machine, ElementwiseOp op,
                      DType operand, DType result, int32_t lanes,
                      std::span<llvm::Value* const> operands);

std::unique_ptr<llvm::Module> translate(const Kernel& kernel, const Machine& machine,
                                        llvm::LLVMContext& context);

void optimize(llvm::Module& module, llvm::TargetMachine& machine);

}  // namespace braze::codegen
