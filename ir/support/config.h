// config.h — gives the other parts of Braze access to the configuration that `configure` was given.
#pragma once

#include <string_view>

#include "braze/config.h"
#include "braze/error.h"

namespace braze {

namespace codes {
inline constexpr Code kBadSetting{"bad-setting", ErrorKind::InvalidArgument,
                                  "A setting has a value that is not possible."};
inline constexpr Code kConfiguredLate{"configured-late", ErrorKind::InvalidArgument,
                                      "The configuration was set after Braze had been used."};
}  // namespace codes

/// Does the work of `configure`, except for the check of device names, which only the runtime can
/// do.
void set_config(Config config);
/// The configuration. For members that are not set, the caller asks the environment. After the
/// first call of this function the configuration cannot change any more.
const Config& config();

/// Writes to the log: to the host program's log function, or to stderr. On stderr, debug output is
/// printed unchanged, and other lines begin with "braze: ".
void write_log(LogLevel level, std::string_view text) noexcept;

}  // namespace braze
