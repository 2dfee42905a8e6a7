// text.h — Tile IR and Kernel IR as text, exact both ways; the grammar is
// docs/design/0001-languages.md sections 3.1 and 4.1.
#pragma once

#include <string>
#include <string_view>

#include "ir/code/code.h"

namespace braze {

/// The whole file: header, size symbols, the kernel.
std::string to_text(const TileProgram& program);
std::string to_text(const Kernel& kernel);

/// One statement without its regions, for messages.
std::string to_text(const KernelCode& code, const Statement& statement);

}  // namespace braze
