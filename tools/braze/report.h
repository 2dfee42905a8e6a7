// report.h — tables, colours and JSON: how the tool says things.
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

/// "5.31 ms".
std::string seconds_text(double seconds);

/// `name`, or name-2, name-3 ...: the first that is not in `taken`.
std::string unused_name(const std::string& name, const std::vector<std::string>& taken);

/// The names of a program's or a graph's outputs, all different: those that have none are
/// "output0", "output1" ... by their position.
template <class Outputs>
std::vector<std::string> output_names(const Outputs& outputs) {
  std::vector<std::string> names;
  for (const auto& output : outputs) names.push_back(output.name);
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i].empty()) names[i] = unused_name("output" + std::to_string(i), names);
  return names;
}

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
