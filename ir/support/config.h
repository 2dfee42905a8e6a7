// config.h — what `configure` was given, for those who act by it.
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

/// The work of `configure`, except for what the runtime knows: the names of devices.
void set_config(Config config);
/// What is not set in it is for the environment to say. From the first call on it stays as it is.
const Config& config();

/// Tells the log: the host application's, or stderr, where debug output stands as it is, and other
/// lines begin with "braze: ".
void write_log(LogLevel level, std::string_view text) noexcept;

}  // namespace braze
