// report.h — tables, colours and JSON in the output of the tool.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace braze::tool {

enum class Colour { Red, Green, Dim };

/// `text` in a colour if `descriptor` is a terminal and NO_COLOR is not set.
std::string paint(Colour colour, std::string_view text, int descriptor);

/// Rows with their columns aligned, indented by two. Cells that look like numbers go to the right.
std::string table(const std::vector<std::vector<std::string>>& rows);

/// The text without characters that steer a terminal, which names in other people's files may
/// contain. They are written as \x1b. Those in `kept` stay.
std::string printable(std::string_view text, std::string_view kept = "");

/// "5.31 ms".
std::string seconds_text(double seconds);

/// JSON is written as text: values are texts already. A report carries {"schema": 1}.
namespace json {
using Members = std::vector<std::pair<std::string_view, std::string>>;
std::string string(std::string_view text);
/// NaN and infinities, which JSON does not have, are strings.
std::string number(double value);
std::string boolean(bool value);
std::string array(const std::vector<std::string>& values);
std::string object(const Members& members);
/// Prints a whole report.
void print(Members members);
}  // namespace json

}  // namespace braze::tool
