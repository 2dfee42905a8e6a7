// json.h — reads JSON (RFC 8259) from untrusted text, value by value; json_string.h writes strings.
//
// The reader makes no tree: its caller asks for the values that it expects, in the order of the
// text, and anything else is an error that names the byte. Nothing is allocated but the strings
// that are asked for, none of which is longer than its text. Whether a member may come twice is the
// caller's matter.
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
  /// Objects and arrays within one another.
  static constexpr int kMostDepth = 64;

  /// `file` is for messages. Both must outlive the reader.
  JsonReader(std::string_view text, std::string_view file) : text_(text), file_(file) {}

  /// Calls `member(name)` for each member of the object that comes next; it reads the value.
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
  /// Calls `element()` for each element of the array that comes next; it reads the element.
  template <class F>
  void array(F&& element) {
    begin('[');
    for (bool more = !ends(']'); more; more = continues(']')) element();
    --depth_;
  }
  /// A string, its escapes resolved: well-formed UTF-8.
  std::string string();
  /// A number without sign, fraction and exponent that is at most 2^64 - 1.
  uint64_t integer();
  /// Any number, rounded to double.
  double number();
  /// true or false.
  bool boolean();
  /// The first character of the value that comes next: '{', '[', '"', 't', 'f', 'n', or that of a
  /// number; '\0' at the end.
  char next() { return peek(); }
  /// Any value, checked but dropped.
  void skip();
  /// Demands that nothing but blanks is left.
  void finish();

  /// Throws kJsonSyntax, or another code: `what`, with the file and the byte.
  [[noreturn]] void fail_here(std::string_view what, const Code& code = codes::kJsonSyntax) const;

 private:
  char peek();  // behind blanks; '\0' at the end
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
