// instruction_text.h — the rows of ir/code/instructions.def as inline assembly, for both GPU code
// generators.
//
// A generator turns the operands of an instruction into registers, operand by operand:
//   i      one register of 32 bits
//   #      no register; the operand is a part of the text
//   p q    the address in shared memory, 32 bits; then the rank, if a block is named. The constant
//          part of a `p` or `P` without a rank is a part of the text
//   m n    the same as p, of an mbarrier
//   P      the address in device memory, 64 bits
//   t      the address of the map, 64 bits, then the coordinates, outermost first, 32 bits each
//   T      the address of the map
//   v V    one register for each element
//   M B    the descriptor, 64 bits; or one register for each element
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/code/code.h"

namespace braze::codegen {

/// One instruction as inline assembly. In `text`, "$0" ... are the registers of the results,
/// followed by those of the inputs. Register classes are letters: r for 32 bits, l for 64 bits, f
/// for f32, d for f64.
struct AsmText {
  std::string text;
  std::string results;
  std::string inputs;
  std::vector<int> ties;   ///< for each input the result whose register it is in, or -1
  bool effects = true;     ///< false: it does nothing but compute its results
  bool converges = false;  ///< the threads of a warp must be together
};

/// The registers of one operand: their number and their properties.
struct AsmOperand {
  size_t registers = 0;
  char letter = 'r';                ///< the register class of a value's registers
  bool has_rank = false;            ///< the last register is a block's rank
  int64_t behind = 0;               ///< the place is so many bytes behind the address
  std::optional<int64_t> constant;  ///< of '#', and of 'i' where it is known
  std::optional<MatrixLayout> matrix;
};

/// A place in memory whose address an instruction takes, without its constant part, and that part
/// in bytes. Places that differ by constants share one address, and the instruction adds the rest.
struct AddressedPlace {
  Expr at;
  int64_t behind = 0;
};
AddressedPlace addressed(char letter, const Place& place, DType dtype);

/// `results` holds the number of registers and the letter of each result.
AsmText asm_text(const InstructionOp& op, const std::vector<AsmOperand>& operands,
                 const std::vector<AsmOperand>& results);

/// The register class of a value's elements. Pairs of f16 or bf16 (f16x2, bf16x2) are r. Null for a
/// type that no instruction takes.
std::optional<char> register_letter(const ValueType& type);

/// The bits of a shared address that a descriptor takes. In a cluster, the other bits name the
/// block.
inline constexpr uint32_t kDescriptorAddress = 0x3ffff;

/// The upper half of the descriptor of a wgmma operand. The lower half is the address and the
/// leading stride, both in units of 16 bytes: address | leading << 16.
uint32_t descriptor_high(const MatrixLayout& layout);

}  // namespace braze::codegen
