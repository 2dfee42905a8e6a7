// shell.h — text that users paste into a shell.
#pragma once

#include <string>
#include <string_view>

namespace braze {

/// A path as one word of a command: unchanged if possible, else in quotes. Neither the shell nor
/// the terminal reads anything in it as a command.
std::string shell_path(std::string_view path);

}  // namespace braze
