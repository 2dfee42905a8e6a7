// shell.h — text that users paste into a shell.
#pragma once

#include <string>
#include <string_view>

namespace braze {

/// A path as one word of a command: as it is where that will do, else in quotes. Neither the shell
/// nor the terminal takes anything in it for a command.
std::string shell_path(std::string_view path);

}  // namespace braze
