#include "ir/support/warning.h"

#include <fmt/format.h>

#include <iostream>

namespace braze {

void warn(std::string_view text) { std::cerr << fmt::format("braze: warning: {}\n", text); }

}  // namespace braze
