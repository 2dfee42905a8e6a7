#include "ir/support/shell.h"

#include <fmt/format.h>

#include <algorithm>

namespace braze {

namespace {

// Only ASCII counts as plain, because a locale may have letters that the shell does not know.
bool is_plain(unsigned char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("/._-+=:,@%").find(static_cast<char>(c)) != std::string_view::npos;
}

bool is_control(unsigned char c) { return c < 0x20 || c == 0x7f; }

// The path as $'...', which bash, zsh and POSIX 2024 understand.
std::string escaped(std::string_view path) {
  std::string word = "$'";
  for (const char c : path) {
    if (is_control(static_cast<unsigned char>(c)))
      word += fmt::format("\\{:03o}", static_cast<unsigned char>(c));
    else if (c == '\'' || c == '\\')
      word += {'\\', c};
    else
      word += c;
  }
  return word + "'";
}

std::string in_quotes(std::string_view path) {
  std::string word = "'";
  for (const char c : path) {
    if (c == '\'')
      word += "'\\''";
    else
      word += c;
  }
  return word + "'";
}

}  // namespace

std::string shell_path(std::string_view path) {
  // Otherwise a command could take the path for an option.
  if (path.starts_with('-')) return shell_path(fmt::format("./{}", path));
  if (std::ranges::any_of(path, is_control)) return escaped(path);
  if (!path.empty() && std::ranges::all_of(path, is_plain)) return std::string(path);
  return in_quotes(path);
}

}  // namespace braze
