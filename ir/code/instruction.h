// instruction.h — the table of special GPU instructions (instructions.def), as data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace braze {

enum class Instruction : uint8_t {
#define INSTRUCTION(id, text, operands, meeting, result, capability) id,
#include "ir/code/instructions.def"
#undef INSTRUCTION
};

/// The threads that have to reach an instruction together.
enum class Meeting : uint8_t { Thread, Warp, Group };

enum class InstructionResult : uint8_t { None, First, Tied, Fragment, Accumulator };

struct InstructionInfo {
  std::string_view text;      ///< its name, with "{}" in place of the columns of a wgmma
  std::string_view operands;  ///< letters as in instructions.def
  Meeting meeting;
  InstructionResult result;
  int capability;  ///< 10 x the compute capability that has it first
};

const InstructionInfo& info(Instruction instruction);

/// The name in text; `columns` is the N of a wgmma.
std::string name(Instruction instruction, int64_t columns = 0);

/// An instruction and its number of columns (0: it has none).
struct NamedInstruction {
  Instruction instruction;
  int64_t columns = 0;
};
std::optional<NamedInstruction> parse_instruction(std::string_view text);

}  // namespace braze
