// functions.h — what text tests can do with a text. Every layer adds its rows in functions.cpp.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace braze::text_test {

/// A row of `// run:`: text in, text out. Throws Error as the function under test does.
struct Function {
  std::string_view name;
  std::string (*run)(std::string_view text, std::string_view file_name);
};

/// One of the languages, known by the header of a text.
struct Language {
  std::string_view header;
  /// Parses, verifies and prints.
  std::string (*print)(std::string_view text, std::string_view file_name);
  /// Runs the interpreter on `arguments`, the text behind `// eval:`. One line per output.
  std::string (*eval)(std::string_view text, std::string_view file_name,
                      std::string_view arguments);
  /// The decisions that `// reason:` lists, one per line. Null: the language has none.
  std::string (*reasons)(std::string_view text, std::string_view file_name);
};

std::span<const Function> functions();
std::span<const Language> languages();

}  // namespace braze::text_test
