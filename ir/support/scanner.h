// scanner.h — the tokenizer of all text formats.
//
// Tokens are identifiers, %names, @names, integers, floating-point numbers, strings and
// punctuation: one character, or one of -> .. == != <= >=. Words hold letters, digits, _ and inner
// dots; numbers may be hexadecimal, as 0x1.8p-3. "//" starts a comment that ends with the line. The
// text is untrusted: no more memory is allocated than the size of the text, and every error names
// line and column.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "braze/error.h"

namespace braze {

namespace codes {
inline constexpr Code kSyntax{"syntax", ErrorKind::InvalidArgument,
                              "The text does not follow the grammar."};
inline constexpr Code kTextVersion{"text-version", ErrorKind::Unsupported,
                                   "The text is of a version that this Braze does not read."};
}  // namespace codes

enum class TokenKind : uint8_t {
  End,
  Identifier,
  Value,
  Symbol,
  Integer,
  Float,
  String,
  Punctuation
};

struct Token {
  TokenKind kind = TokenKind::End;
  std::string_view text;  ///< Value, Symbol: without % or @; String: without quotes, escapes kept
  uint32_t line = 1;
  uint32_t column = 1;
};

/// An integer as it is written: an optional minus, and the digits.
struct WholeNumber {
  bool negative = false;
  uint64_t magnitude = 0;
};

class Scanner {
 public:
  /// `text` must outlive the scanner. Fails if the first token is malformed, as `next` fails at a
  /// later one.
  Scanner(std::string_view text, std::string_view file_name);

  const Token& peek() const { return token_; }
  /// The token after `peek()`.
  Token peek_second() const;
  Token next();
  bool at_end() const { return token_.kind == TokenKind::End; }

  /// True if the current token is this punctuation ("->", "..", "==" included) or identifier.
  bool at(std::string_view text) const;
  /// Skips the token if it is `text`.
  bool accept(std::string_view text);
  /// Skips `text` or fails.
  void expect(std::string_view text);

  std::string_view expect_identifier(std::string_view what);
  std::string_view expect_value();   // %name
  std::string_view expect_symbol();  // @name
  std::string_view expect_string();  // as written; `unquote` resolves escapes
  int64_t expect_integer();          // with an optional minus
  WholeNumber expect_whole_number();
  /// A number as double: an integer, a float, inf or nan, with an optional minus.
  double expect_number();

  /// True if a line break lies between the previous token and the current one.
  bool at_line_start() const { return line_start_; }

  SourceLocation location() const;
  [[noreturn]] void fail_here(const std::string& message, const Code& code = codes::kSyntax) const;

 private:
  Token scan(size_t& position, uint32_t& line, size_t& line_begin) const;
  std::string_view expect_kind(TokenKind kind, std::string_view what);
  SourceLocation location_of(const Token& token) const;
  [[noreturn]] void fail_at(const Token& token, const std::string& message, const Code& code) const;

  std::string_view text_;
  const char* file_;
  size_t position_ = 0;
  uint32_t line_ = 1;
  size_t line_begin_ = 0;
  Token token_;
  bool line_start_ = true;
};

/// The inverse of `quote` in text.h: resolves the escapes in the text of a string token.
std::string unquote(std::string_view text);

/// Checks and skips the header "braze 1 <what>".
void expect_header(Scanner& scanner, std::string_view what);

}  // namespace braze
