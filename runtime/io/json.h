// json.h — reads JSON (RFC 8259) from untrusted text, value by value; json_string.h writes strings.
//
// The reader builds no tree. Its caller asks for the values that it expects, in the order of the
// text, and anything else is an error that names the byte. The reader allocates only the strings
// that are asked for, and a string is not longer than its text. The caller decides whether a member
// may occur twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "braze/error.h"
#include "ir/support/json_string.h"

namespace braze {

namespace codes {
inline constexpr Code kJsonSyntax{"json-syntax", ErrorKind::InvalidArgument,
                                  "A text is not the JSON that is expected there."};
}  // namespace codes

class JsonReader {
 public:
  /// The greatest depth of nested objects and arrays.
  static constexpr int kMostDepth = 64;

  /// `file` is for messages. Both must outlive the reader.
  JsonReader(std::string_view text, std::string_view file) : text_(text), file_(file) {}

  /// Calls `member(name)` for each member of the next object. The callback must read the value.
  template <class F>
  void object(F&& member) {
    begin('{');
    for (bool more = !ends('}'); more; more = continues('}')) {
      std::string name = string();
      expect(':');
      member(std::move(name));
    }
    --depth_;
  }
  /// Calls `element()` for each element of the next array. The callback must read the element.
  template <class F>
  void array(F&& element) {
    begin('[');
    for (bool more = !ends(']'); more; more = continues(']')) element();
    --depth_;
  }
  /// Reads a string and resolves its escapes. The result is valid UTF-8.
  std::string string();
  /// Reads a number without sign, fraction and exponent, at most 2^64 - 1.
  uint64_t integer();
  /// Reads any number, rounded to double.
  double number();
  /// Reads true or false.
  bool boolean();
  /// The first character of the next value: '{', '[', '"', 't', 'f', 'n', or that of a number; '\0'
  /// at the end.
  char next() { return peek(); }
  /// Checks the next value, of any kind, and drops it.
  void skip();
  /// Fails unless only blanks are left.
  void finish();

  /// Throws kJsonSyntax, or another code, with `what`, the file and the byte.
  [[noreturn]] void fail_here(std::string_view what, const Code& code = codes::kJsonSyntax) const;

 private:
  char peek();  // the next character after blanks; '\0' at the end
  bool accept(char c);
  void expect(char c);
  void begin(char bracket);
  bool ends(char bracket);
  bool continues(char bracket);
  size_t skip_digits();
  void skip_number();
  void skip_word(std::string_view word);
  uint32_t hex4();
  void escape(std::string& out);

  const std::string_view text_;
  const std::string_view file_;
  size_t position_ = 0;
  int depth_ = 0;
};

}  // namespace braze
