#include "tools/braze/report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "ir/support/json_string.h"
#include "ir/support/text.h"

namespace braze::tool {

std::string paint(Colour colour, std::string_view text, int descriptor) {
  constexpr std::string_view kCodes[] = {"31;1", "32", "2"};
  const char* refused = std::getenv("NO_COLOR");
  if ((refused && *refused) || !isatty(descriptor)) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", kCodes[static_cast<size_t>(colour)], text);
}

std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      // A number, perhaps with a unit. Longer texts may begin with a digit too.
      const bool number = !row[i].empty() && std::isdigit(static_cast<unsigned char>(row[i][0])) &&
                          std::count(row[i].begin(), row[i].end(), ' ') < 2;
      line += number && i > 0 ? fmt::format("  {:>{}}", row[i], widths[i])
                              : fmt::format("  {:<{}}", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string printable(std::string_view text, std::string_view kept) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool steers = (byte < 0x20 || byte == 0x7f) && kept.find(c) == kept.npos;
    out += steers ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
  }
  return out;
}

std::string seconds_text(double seconds) {
  constexpr std::pair<double, std::string_view> kUnits[] = {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}};
  for (const auto& [unit, name] : kUnits)
    if (seconds >= unit) return fmt::format("{:.3g} {}", seconds / unit, name);
  return fmt::format("{:.3g} ns", seconds * 1e9);
}

namespace json {

std::string string(std::string_view text) { return json_string(text); }

std::string number(double value) {
  return std::isfinite(value) ? number_text(value) : string(number_text(value));
}

std::string boolean(bool value) { return value ? "true" : "false"; }

std::string array(const std::vector<std::string>& values) {
  return "[" + join(values, ", ", [](const std::string& value) { return value; }) + "]";
}

std::string object(const Members& members) {
  return "{" +
         join(members, ", ",
              [](const auto& member) {
                return fmt::format("{}: {}", string(member.first), member.second);
              }) +
         "}";
}

void print(Members members) {
  members.insert(members.begin(), {"schema", "1"});
  fmt::print("{}\n", object(members));
}

}  // namespace json

}  // namespace braze::tool
