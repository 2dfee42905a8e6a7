#include "ir/support/warning.h"

#include "ir/support/config.h"

namespace braze {

void warn(std::string_view text) { write_log(LogLevel::Warning, text); }

}  // namespace braze
