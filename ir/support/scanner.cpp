#include "ir/support/scanner.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

#include "ir/support/text.h"

namespace braze {

namespace {

// The functions of <cctype> depend on the locale, so these replace them.
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex_digit(char c) { return is_digit(c) || (c >= 'a' && c <= 'f'); }
bool is_word_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_word(char c) { return is_word_start(c) || is_digit(c); }

/// The character at `i`, or NUL after the end. NUL is not part of any token.
char at_or_nul(std::string_view text, size_t i) { return i < text.size() ? text[i] : '\0'; }

/// The end of a name that continues at `i`. A dot belongs to the name only if the name continues
/// after it, so "n..m" is a range and "dot.start" one word.
size_t skip_word(std::string_view text, size_t i) {
  while (is_word(at_or_nul(text, i)) ||
         (at_or_nul(text, i) == '.' && is_word(at_or_nul(text, i + 1)))) {
    ++i;
  }
  return i;
}

size_t skip_digits(std::string_view text, size_t i) {
  while (is_digit(at_or_nul(text, i))) ++i;
  return i;
}

/// The end of a hexadecimal number, such as "1.8p-3", that starts at `i`.
size_t skip_hex(std::string_view text, size_t i) {
  const auto skip = [&] {
    while (is_hex_digit(at_or_nul(text, i))) ++i;
  };
  skip();
  if (at_or_nul(text, i) == '.' && is_hex_digit(at_or_nul(text, i + 1))) {
    ++i;
    skip();
  }
  if (at_or_nul(text, i) != 'p') return i;
  const char sign = at_or_nul(text, i + 1);
  const size_t digits = i + (sign == '+' || sign == '-' ? 2 : 1);
  return is_digit(at_or_nul(text, digits)) ? skip_digits(text, digits) : i;
}

/// Text for a message. It is untrusted, so its length is limited and it has no control characters.
std::string excerpt(std::string_view text) {
  constexpr size_t kLimit = 60;
  const std::string shown = quote(text.substr(0, kLimit));
  return text.size() > kLimit ? shown + "..." : shown;
}

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::End:
      return "the end of the text";
    case TokenKind::Value:
      return excerpt(fmt::format("%{}", token.text.substr(0, 80)));
    case TokenKind::Symbol:
      return excerpt(fmt::format("@{}", token.text.substr(0, 80)));
    case TokenKind::String:
      return "the string " + excerpt(token.text);
    default:
      return excerpt(token.text);
  }
}

std::optional<char> hex_byte(std::string_view digits) {
  unsigned value = 0;
  const char* end = digits.data() + digits.size();
  if (digits.size() != 2 || std::from_chars(digits.data(), end, value, 16).ptr != end) {
    return std::nullopt;
  }
  return static_cast<char>(value);
}

uint32_t saturate_u32(size_t n) {
  return static_cast<uint32_t>(std::min<size_t>(n, std::numeric_limits<uint32_t>::max()));
}

}  // namespace

Scanner::Scanner(std::string_view text, std::string_view file_name)
    : text_(text), file_(SourceLocation(file_name, 0, 0).file) {
  token_ = scan(position_, line_, line_begin_);
}

Token Scanner::scan(size_t& position, uint32_t& line, size_t& line_begin) const {
  const auto peek = [&](size_t ahead) { return at_or_nul(text_, position + ahead); };

  while (position < text_.size()) {
    const char c = text_[position];
    if (c == '\n') {
      ++position;
      ++line;
      line_begin = position;
    } else if (c == ' ' || c == '\t' || c == '\r') {
      ++position;
    } else if (c == '/' && peek(1) == '/') {
      position = std::min(text_.find('\n', position), text_.size());
    } else {
      break;
    }
  }

  Token token;
  token.line = line;
  token.column = saturate_u32(position - line_begin + 1);
  if (position >= text_.size()) return token;

  const size_t begin = position;
  const auto take = [&](TokenKind kind, size_t from, size_t end) {
    token.kind = kind;
    token.text = text_.substr(from, end - from);
    position = end;
    return token;
  };
  const auto reject = [&](const std::string& message) { fail_at(token, message, codes::kSyntax); };

  const char c = text_[begin];
  if (is_word_start(c)) return take(TokenKind::Identifier, begin, skip_word(text_, begin));
  if ((c == '%' || c == '@') && is_word(peek(1))) {
    const TokenKind kind = c == '%' ? TokenKind::Value : TokenKind::Symbol;
    return take(kind, begin + 1, skip_word(text_, begin + 1));
  }
  if (c == '0' && peek(1) == 'x' && is_hex_digit(peek(2)))
    return take(TokenKind::Float, begin, skip_hex(text_, begin + 2));
  if (is_digit(c)) {
    size_t end = skip_digits(text_, begin);
    TokenKind kind = TokenKind::Integer;
    // "1..8" is a range: a dot is a decimal point only before a digit.
    if (at_or_nul(text_, end) == '.' && is_digit(at_or_nul(text_, end + 1))) {
      kind = TokenKind::Float;
      end = skip_digits(text_, end + 1);
    }
    if (const char e = at_or_nul(text_, end); e == 'e' || e == 'E') {
      const char sign = at_or_nul(text_, end + 1);
      const size_t digits = end + (sign == '+' || sign == '-' ? 2 : 1);
      if (is_digit(at_or_nul(text_, digits))) {
        kind = TokenKind::Float;
        end = skip_digits(text_, digits);
      }
    }
    return take(kind, begin, end);
  }
  if (c == '"') {
    for (size_t end = begin + 1; end < text_.size(); ++end) {
      const char s = text_[end];
      if (s == '"') {
        take(TokenKind::String, begin + 1, end);
        ++position;
        return token;
      }
      if (s == '\n') break;
      if (s == '\\' && end + 1 < text_.size() && text_[end + 1] != '\n') ++end;
    }
    reject("the string has no closing quote on its line");
  }
  constexpr std::string_view kPairs[] = {"->", "..", "==", "!=", "<=", ">="};
  for (const std::string_view pair : kPairs) {
    if (text_.substr(begin, 2) == pair) return take(TokenKind::Punctuation, begin, begin + 2);
  }
  if (c <= ' ' || c > '~') {
    reject(fmt::format("unexpected byte 0x{:02x}", static_cast<unsigned char>(c)));
  }
  return take(TokenKind::Punctuation, begin, begin + 1);
}

Token Scanner::peek_second() const {
  size_t position = position_;
  uint32_t line = line_;
  size_t line_begin = line_begin_;
  return scan(position, line, line_begin);
}

Token Scanner::next() {
  const Token current = token_;
  token_ = scan(position_, line_, line_begin_);
  line_start_ = token_.line != current.line;
  return current;
}

bool Scanner::at(std::string_view text) const {
  return (token_.kind == TokenKind::Punctuation || token_.kind == TokenKind::Identifier) &&
         token_.text == text;
}

bool Scanner::accept(std::string_view text) {
  if (!at(text)) return false;
  next();
  return true;
}

void Scanner::expect(std::string_view text) {
  if (!accept(text)) fail_here(fmt::format("expected \"{}\", found {}", text, describe(token_)));
}

std::string_view Scanner::expect_kind(TokenKind kind, std::string_view what) {
  if (token_.kind != kind) fail_here(fmt::format("expected {}, found {}", what, describe(token_)));
  return next().text;
}

std::string_view Scanner::expect_identifier(std::string_view what) {
  return expect_kind(TokenKind::Identifier, what);
}
std::string_view Scanner::expect_value() { return expect_kind(TokenKind::Value, "a %name"); }
std::string_view Scanner::expect_symbol() { return expect_kind(TokenKind::Symbol, "a @name"); }
std::string_view Scanner::expect_string() { return expect_kind(TokenKind::String, "a string"); }

int64_t Scanner::expect_integer() {
  const Token start = token_;
  const WholeNumber number = expect_whole_number();
  const uint64_t limit = static_cast<uint64_t>(INT64_MAX) + (number.negative ? 1 : 0);
  if (number.magnitude > limit)
    fail_at(start,
            fmt::format("{}{} does not fit in 64 bits", number.negative ? "-" : "",
                        excerpt(std::to_string(number.magnitude))),
            codes::kSyntax);
  // Unsigned negation is right for the least integer too.
  return static_cast<int64_t>(number.negative ? 0 - number.magnitude : number.magnitude);
}

WholeNumber Scanner::expect_whole_number() {
  const Token start = token_;
  const bool negative = accept("-");
  if (token_.kind != TokenKind::Integer) {
    fail_here(fmt::format("expected an integer, found {}", describe(token_)));
  }
  const std::string_view digits = token_.text;
  uint64_t magnitude = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), magnitude);
  if (result.ec != std::errc()) {
    fail_at(start,
            fmt::format("{}{} does not fit in 64 bits", negative ? "-" : "", excerpt(digits)),
            codes::kSyntax);
  }
  next();
  return {negative, magnitude};
}

double Scanner::expect_number() {
  const Token start = token_;
  const bool negative = accept("-");
  double value = 0;
  if (at("inf")) {
    value = std::numeric_limits<double>::infinity();
  } else if (at("nan")) {
    value = std::numeric_limits<double>::quiet_NaN();
  } else if (token_.kind == TokenKind::Integer || token_.kind == TokenKind::Float) {
    const std::string_view digits = token_.text;
    const bool hex = digits.starts_with("0x");
    const auto format = hex ? std::chars_format::hex : std::chars_format::general;
    const char* const begin = digits.data() + (hex ? 2 : 0);
    if (std::from_chars(begin, digits.data() + digits.size(), value, format).ec != std::errc()) {
      fail_at(start, fmt::format("{} is outside of the range of f64", excerpt(digits)),
              codes::kSyntax);
    }
  } else {
    fail_here(fmt::format("expected a number, found {}", describe(token_)));
  }
  next();
  return negative ? -value : value;
}

SourceLocation Scanner::location() const { return location_of(token_); }

SourceLocation Scanner::location_of(const Token& token) const {
  SourceLocation location;
  location.file = file_;
  location.line = token.line;
  location.column = token.column;
  return location;
}

void Scanner::fail_here(const std::string& message, const Code& code) const {
  fail_at(token_, message, code);
}

void Scanner::fail_at(const Token& token, const std::string& message, const Code& code) const {
  fail(code, message, {.location = location_of(token), .node = "", .fix = ""});
}

std::string unquote(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const char c = text[++i];
    if (c == 'n') {
      out += '\n';
    } else if (c == 't') {
      out += '\t';
    } else if (const auto byte = c == 'x' ? hex_byte(text.substr(i + 1, 2)) : std::nullopt) {
      out += *byte;
      i += 2;
    } else {
      out += c;
    }
  }
  return out;
}

void expect_header(Scanner& scanner, std::string_view what) {
  if (!scanner.accept("braze"))
    scanner.fail_here(fmt::format("a text begins with \"braze 1 {}\", but this one with {}", what,
                                  describe(scanner.peek())));
  const SourceLocation location = scanner.location();
  if (const int64_t version = scanner.expect_integer(); version != 1) {
    fail(codes::kTextVersion,
         fmt::format("this is text of version {}, but this Braze reads version 1", version),
         {.location = location, .node = "", .fix = "use the version of Braze that wrote the file"});
  }
  if (!scanner.at(what)) {
    scanner.fail_here(
        fmt::format("expected a text of kind \"{}\", found {}", what, describe(scanner.peek())));
  }
  scanner.next();
}

}  // namespace braze
