// shell.h — makes text that users can safely paste into a shell.
#pragma once

#include <string>
#include <string_view>

namespace braze {

/// A path as one word of a command: unchanged if possible, otherwise in quotes. Neither the shell
/// nor the terminal takes any part of it for a command.
std::string shell_path(std::string_view path);

}  // namespace braze
