// layout_text.h — reads the text of layouts, which Layout::to_string writes.
#pragma once

#include "ir/code/layout.h"
#include "ir/support/scanner.h"

namespace braze {

/// Reads "(w1:4 r2:2 l4:8 | -)". Fails with line and column.
Layout parse_layout(Scanner& scanner);

}  // namespace braze
