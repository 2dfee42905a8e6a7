// llvm_p.h — declarations that the files of this folder share. Only the .cpp files, and
// translator_p.h, which is private to some of them, include the headers of LLVM.
//
//   translate*.cpp    Kernel -> llvm::Module: loops, accesses, index expressions; for every machine
//   region_uses.cpp   the values and memory that a region of a kernel reads and stores to
//   rows.cpp          machine rows -> instructions
//   emit.cpp          the steps of one generation; passes over LLVM IR
//   image.cpp         x86-64: entry functions, target machine, object, image
//   nvptx.cpp         NVIDIA GPUs: entry functions, target machine, PTX
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ir/code/code.h"
#include "ir/target/target.h"

namespace llvm {
class Constant;
class Function;
class IRBuilderBase;
class LLVMContext;
class Module;
class TargetMachine;
class Type;
class Value;
}  // namespace llvm

namespace braze {
struct CodegenTimes;
}

// Hidden, because their types belong to an LLVM that no other code in the process may see.
namespace braze {
namespace [[gnu::visibility("hidden")]] codegen {

/// The function of a phase, and the values of its parameters, which are valid in all its blocks.
struct Entry {
  llvm::Function* function = nullptr;
  std::vector<llvm::Value*> pointers;  ///< by memory; null for memory that the body places
  std::vector<llvm::Value*> words;     ///< 64 bits each: the kernel's symbols, then its scalars
  std::vector<llvm::Value*> maps;      ///< the addresses of tensor maps
  /// The number of the block in its member, if members have sizes of their own. Otherwise null.
  llvm::Value* block = nullptr;
};

/// The differences between machines: the entry function, the numbering of instances, the places of
/// memories, and the facts by which the translator and the rows choose instructions.
class Machine {
 public:
  virtual ~Machine() = default;

  /// Whether one thread runs one lane. Guards are then branches, loads are issued in place, and
  /// index arithmetic uses 32 bits if that is proven to be enough.
  bool simt = false;
  bool avx512 = false;  ///< F, BW, DQ, VL: mask registers for every element size
  int vector_bytes = 32;

  using Names = std::vector<std::pair<std::string, llvm::Value*>>;
  using Index = std::function<llvm::Value*(const Expr&)>;
  using Body = std::function<void(const Names&)>;

  /// Makes the function of phase `number` and reads its parameters. Afterwards `b` inserts at the
  /// beginning of the phase's work.
  virtual Entry enter(const Kernel& kernel, size_t number, llvm::Module& module,
                      llvm::IRBuilderBase& b) const = 0;
  /// Emits `body` so that it runs for every instance of the call, with the index symbols of the
  /// instance. `index` evaluates an expression over sizes.
  virtual void instances(const Phase& phase, const Entry& entry, llvm::IRBuilderBase& b,
                         const Index& index, const Body& body) const = 0;
  /// The address of local or shared memory at `offset` bytes in its space.
  virtual llvm::Value* place(const Memory& memory, int64_t bytes, int64_t offset,
                             const Entry& entry, llvm::IRBuilderBase& b) const = 0;
  /// Ends the function. `streams` says whether some store bypassed the caches.
  virtual void leave(bool streams, llvm::IRBuilderBase& b) const = 0;
  /// Sets the attributes that every function for this machine needs, including those that the
  /// translator adds.
  virtual void set_attributes(llvm::Function& function) const = 0;
};

/// The LLVM type of a value with these lanes in registers: bool is i1, f16 and bf16 are represented
/// by their bits as i16, and a value with one lane is a scalar.
llvm::Type* register_type(llvm::LLVMContext& context, DType dtype, int32_t lanes);
/// The LLVM type of the same value in memory, where a bool is a byte.
llvm::Type* memory_type(llvm::LLVMContext& context, DType dtype, int32_t lanes);
/// A constant whose lanes are all the element with these bits.
llvm::Constant* literal(llvm::LLVMContext& context, DType dtype, uint64_t bits, int32_t lanes);

/// Emits a machine row on operands in registers, with the semantics of machine_semantics.h.
/// `operand` is the dtype of the operands (of y and z for select).
llvm::Value* emit_row(llvm::IRBuilderBase& builder, const Machine& machine, ElementwiseOp op,
                      DType operand, DType result, int32_t lanes,
                      std::span<llvm::Value* const> operands);

/// The quotient of a 32-bit unsigned integer and a constant `d` > 0, in the form in which code for
/// GPUs has it (constant_division.h). `is_small` says that x is at most 2^31.
llvm::Value* divide_by_constant(llvm::IRBuilderBase& builder, llvm::Value* x, uint32_t d,
                                bool is_small);

/// The kernel as an LLVM module. Inline assembly has the address of its statement in `srcloc`, a
/// number that LLVM repeats in its error messages.
std::unique_ptr<llvm::Module> translate(const Kernel& kernel, const Machine& machine,
                                        llvm::LLVMContext& context);

/// A machine as this folder and LLVM describe it.
struct Backend {
  const Machine& machine;
  llvm::TargetMachine& target;
  const char* triple;
};
/// Throws Unsupported if there is no machine for the target. The objects that LLVM keeps for it
/// belong to the calling thread.
Backend x86_backend(const Target& target);
Backend nvptx_backend(const Target& target);

enum class Emission : uint8_t { LlvmText, Assembly, Object };

/// Translates a kernel, optimizes it and writes its code.
std::string emit(const Kernel& kernel, const Backend& backend, Emission emission,
                 CodegenTimes& times);

// The formatter would write the attribute into this comment.
// clang-format off
}  // namespace codegen
// clang-format on
}  // namespace braze
