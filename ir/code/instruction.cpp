#include "ir/code/instruction.h"

#include <charconv>
#include <iterator>

namespace braze {

namespace {

constexpr InstructionInfo kTable[] = {
#define INSTRUCTION(id, text, operands, meeting, result, capability) \
  {text, operands, Meeting::meeting, InstructionResult::result, capability},
#include "ir/code/instructions.def"
#undef INSTRUCTION
};

constexpr std::string_view kHole = "{}";

// The number in `text` at the place of the row's placeholder.
std::optional<int64_t> columns_of(std::string_view row, std::string_view text) {
  const size_t hole = row.find(kHole);
  if (hole == row.npos || !text.starts_with(row.substr(0, hole))) return std::nullopt;
  const std::string_view rest = text.substr(hole), tail = row.substr(hole + kHole.size());
  int64_t columns = 0;
  const auto read = std::from_chars(rest.data(), rest.data() + rest.size(), columns);
  const auto digits = static_cast<size_t>(read.ptr - rest.data());
  if (read.ec != std::errc() || columns < 1 || rest.substr(digits) != tail) return std::nullopt;
  return columns;
}

}  // namespace

const InstructionInfo& info(Instruction instruction) {
  return kTable[static_cast<size_t>(instruction)];
}

std::string name(Instruction instruction, int64_t columns) {
  std::string out(info(instruction).text);
  if (const size_t hole = out.find(kHole); hole != out.npos)
    out.replace(hole, kHole.size(), std::to_string(columns));
  return out;
}

std::optional<NamedInstruction> parse_instruction(std::string_view text) {
  for (size_t i = 0; i < std::size(kTable); ++i) {
    if (kTable[i].text == text) return NamedInstruction{static_cast<Instruction>(i), 0};
    if (const auto columns = columns_of(kTable[i].text, text))
      return NamedInstruction{static_cast<Instruction>(i), *columns};
  }
  return std::nullopt;
}

}  // namespace braze
