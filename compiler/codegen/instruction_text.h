// instruction_text.h — the rows of ir/code/instructions.def as inline assembly, for both GPU code
// generators.
//
// A generator turns an instruction's operands into registers, operand by operand:
//   i  one of 32 bits                      #  none: it stands in the text
//   p q  the address in shared memory, 32 bits; then the rank, where a block is named
//   m n  likewise                          P  the address in device memory, 64 bits
//   t  the map's address, 64 bits, then the coordinates outermost first, 32 bits each
//   T  the map's address                   v V  one for each element
//   M B  the descriptor, 64 bits; or one for each element
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/code/code.h"

namespace braze::codegen {

/// One instruction as inline assembly. In `text` "$0" .. are the results' registers, then the
/// inputs'. Register classes are letters: r 32 bits, l 64 bits, f f32, d f64.
struct AsmText {
  std::string text;
  std::string results;
  std::string inputs;
  std::vector<int> ties;   ///< for each input the result whose register it is in, or -1
  bool effects = true;     ///< false: only its results matter
  bool converges = false;  ///< the threads of a warp must be together
};

/// Registers of one operand: how many, and what is known of them.
struct AsmOperand {
  size_t registers = 0;
  char letter = 'r';                ///< of a value's
  bool has_rank = false;            ///< the last register is a block's rank
  std::optional<int64_t> constant;  ///< of '#', and of 'i' where it is known
  std::optional<MatrixLayout> matrix;
};

/// `results` is the number of registers and the letter of each result.
AsmText asm_text(const InstructionOp& op, const std::vector<AsmOperand>& operands,
                 const std::vector<AsmOperand>& results);

/// The register class of a value's elements: f16x2 and bf16x2 pairs are r. Null for a type that no
/// instruction takes.
std::optional<char> register_letter(const ValueType& type);

/// The bits of a shared address that a descriptor takes: in a cluster the others name the block.
inline constexpr uint32_t kDescriptorAddress = 0x3ffff;

/// The upper half of the descriptor of a wgmma operand; the lower is the address and the leading
/// stride, both in units of 16 bytes: address | leading << 16.
uint32_t descriptor_high(const MatrixLayout& layout);

}  // namespace braze::codegen
