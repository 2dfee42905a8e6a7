// text.h — loop trees as text, exact both ways; the grammar is docs/design/0003-loop-tree.md,
// section 1.1.
#pragma once

#include <string>
#include <string_view>

#include "compiler/loops/tree.h"

namespace braze {

std::string to_text(const LoopTree& tree);
/// One task or the head of one loop, for messages.
std::string to_text(const LoopTree& tree, const LoopTask& task);
std::string to_text(const LoopTree& tree, const Loop& loop);

/// Reads a file with one tree. Names and syntax are checked here, everything else by `verify`. The
/// text is untrusted: sizes and depth are limited, and every error names line and column.
LoopTree parse_loops(std::string_view text, std::string_view file_name);

}  // namespace braze
