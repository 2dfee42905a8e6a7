// warning.h — messages that the user should see although nothing failed.
#pragma once

#include <string_view>

namespace braze {

/// Passes a warning to the log (braze/config.h). The caller warns once for each cause.
void warn(std::string_view text);

}  // namespace braze
