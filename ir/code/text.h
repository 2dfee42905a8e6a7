// text.h — Tile IR and Kernel IR as text, exact both ways. docs/ir/languages.md has the grammar, in
// sections 3.1 and 4.1.
#pragma once

#include <string>
#include <string_view>

#include "ir/code/code.h"

namespace braze {

/// The whole file: header, size symbols, the kernel.
std::string to_text(const TileProgram& program);
std::string to_text(const Kernel& kernel);

/// Reads a file with one kernel. Names and syntax are checked here, everything else by `verify`.
/// The text is untrusted: sizes and depth are limited, and every error names line and column.
TileProgram parse_tile(std::string_view text, std::string_view file_name);
Kernel parse_kernel(std::string_view text, std::string_view file_name);

/// One statement without its regions, for messages.
std::string to_text(const KernelCode& code, const Statement& statement);

}  // namespace braze
