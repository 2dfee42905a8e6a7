// text.h — loop trees as text. Printing and parsing are exact inverses; the grammar stands in
// docs/design/0003-loop-tree.md, section 1.1.
#pragma once

#include <string>
#include <string_view>

#include "compiler/loops/tree.h"

namespace braze {

std::string to_text(const LoopTree& tree);
/// The text of one task, or of the head of one loop. Messages quote it.
std::string to_text(const LoopTree& tree, const LoopTask& task);
std::string to_text(const LoopTree& tree, const Loop& loop);

/// Reads a file with one tree. The parser checks names and syntax, and `verify` everything else.
/// The text is not trusted: sizes and depth are limited, and every error names its line and column.
LoopTree parse_loops(std::string_view text, std::string_view file_name);

}  // namespace braze
