// warning.h — what the user should know although nothing failed.
#pragma once

#include <string_view>

namespace braze {

/// Tells the log (braze/config.h). Whoever warns does so once for each cause.
void warn(std::string_view text);

}  // namespace braze
