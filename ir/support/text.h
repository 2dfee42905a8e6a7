// text.h — small helpers to make text. Formatting is fmt's; this adds joining, numbers and quotes.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace braze {

/// The texts of the elements, which `to_text` makes, with `separator` between them.
template <class Range, class ToText>
std::string join(const Range& range, std::string_view separator, ToText&& to_text) {
  std::string out;
  bool first = true;
  for (const auto& element : range) {
    if (!first) out += separator;
    first = false;
    out += to_text(element);
  }
  return out;
}

/// `value` as the shortest decimal text that reads back to the same double ("inf", "-inf", "nan").
std::string number_text(double value);
/// The same for float: "0.1", where the nearest double to that float would need 17 digits.
std::string float_text(float value);

/// "1.5 MiB", "640 B".
std::string bytes_text(uint64_t bytes);

/// `text` as a string token, with quotes and escapes; `unquote` of scanner.h is the inverse.
std::string quote(std::string_view text);

}  // namespace braze
