#include "runtime/io/json.h"

#include <charconv>

#include "ir/support/text.h"
#include "ir/support/utf8.h"

namespace braze {

namespace {

constexpr bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

void append_utf8(std::string& out, uint32_t c) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | (c >> shift & 0x3f)); };
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xc0 | c >> 6);
    tail(0);
  } else if (c < 0x10000) {
    out += static_cast<char>(0xe0 | c >> 12);
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xf0 | c >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace

void JsonReader::fail_here(std::string_view what, const Code& code) const {
  fail(code, fmt::format("{}: {} (at byte {} of its JSON)", file_, what, position_));
}

char JsonReader::peek() {
  while (position_ < text_.size() && is_blank(text_[position_])) ++position_;
  return position_ < text_.size() ? text_[position_] : '\0';
}

bool JsonReader::accept(char c) {
  if (peek() != c) return false;
  ++position_;
  return true;
}

void JsonReader::expect(char c) {
  if (!accept(c)) fail_here(fmt::format("there should be a '{}'", c));
}

void JsonReader::begin(char bracket) {
  expect(bracket);
  if (++depth_ > kMostDepth) fail_here(fmt::format("more than {} levels", kMostDepth));
}

bool JsonReader::ends(char bracket) { return accept(bracket); }

bool JsonReader::continues(char bracket) {
  if (accept(',')) return true;
  expect(bracket);
  return false;
}

std::string JsonReader::string() {
  expect('"');
  std::string out;
  while (position_ < text_.size()) {
    const char c = text_[position_];
    if (c == '"') {
      ++position_;
      return out;
    }
    if (c == '\\') {
      ++position_;
      escape(out);
      continue;
    }
    if (static_cast<unsigned char>(c) < 0x20) fail_here("a control character in a string");
    const size_t length = utf8_length(text_.substr(position_));
    if (length == 0) fail_here("a string that is not UTF-8");
    out += text_.substr(position_, length);
    position_ += length;
  }
  fail_here("a string does not end");
}

uint32_t JsonReader::hex4() {
  uint32_t value = 0;
  const std::string_view digits = text_.substr(position_, 4);
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (digits.size() < 4 || result.ptr != digits.data() + 4) fail_here("an escape without 4 digits");
  position_ += 4;
  return value;
}

// Reads an escape after its backslash.
void JsonReader::escape(std::string& out) {
  constexpr std::string_view kLetters = "\"\\/bfnrt";
  constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
  const char letter = position_ < text_.size() ? text_[position_] : '\0';
  const size_t simple = kLetters.find(letter);
  if (simple != std::string_view::npos) {
    out += kMeanings[simple];
    ++position_;
    return;
  }
  if (letter != 'u') fail_here("an escape that JSON does not have");
  ++position_;
  uint32_t c = hex4();
  if (c >= 0xd800 && c < 0xe000) {  // half of a pair
    if (c >= 0xdc00 || text_.substr(position_, 2) != "\\u") fail_here("half of a surrogate pair");
    position_ += 2;
    const uint32_t low = hex4();
    if (low < 0xdc00 || low >= 0xe000) fail_here("half of a surrogate pair");
    c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
  }
  append_utf8(out, c);
}

uint64_t JsonReader::integer() {
  if (!is_digit(peek())) fail_here("there should be an unsigned number");
  uint64_t value = 0;
  const char* const begin = text_.data() + position_;
  const char* const end = text_.data() + text_.size();
  const auto result = std::from_chars(begin, end, value);
  if (result.ec != std::errc()) fail_here("a number beyond 2^64 - 1");
  if (*begin == '0' && result.ptr != begin + 1) fail_here("a number that begins with 0");
  if (result.ptr != end && (*result.ptr == '.' || *result.ptr == 'e' || *result.ptr == 'E'))
    fail_here("there should be an integer without exponent");
  position_ += static_cast<size_t>(result.ptr - begin);
  return value;
}

size_t JsonReader::skip_digits() {
  const size_t begin = position_;
  while (position_ < text_.size() && is_digit(text_[position_])) ++position_;
  return position_ - begin;
}

void JsonReader::skip_number() {
  const auto at = [this](char c) { return position_ < text_.size() && text_[position_] == c; };
  if (at('-')) ++position_;
  const bool zero = at('0');
  const size_t digits = skip_digits();
  if (digits == 0) fail_here("there should be a value");
  if (zero && digits > 1) fail_here("a number that begins with 0");
  if (at('.')) {
    ++position_;
    if (skip_digits() == 0) fail_here("a fraction without digits");
  }
  if (at('e') || at('E')) {
    ++position_;
    if (at('+') || at('-')) ++position_;
    if (skip_digits() == 0) fail_here("an exponent without digits");
  }
}

double JsonReader::number() {
  peek();
  const size_t begin = position_;
  skip_number();
  double value = 0;  // stays 0, or becomes infinite, if the number is out of range
  const char* const end = text_.data() + position_;
  if (std::from_chars(text_.data() + begin, end, value).ec != std::errc())
    fail_here("a number beyond those of double");
  return value;
}

bool JsonReader::boolean() {
  const bool value = peek() == 't';
  skip_word(value ? "true" : "false");
  return value;
}

void JsonReader::skip_word(std::string_view word) {
  if (!text_.substr(position_).starts_with(word)) fail_here("there should be a value");
  position_ += word.size();
}

void JsonReader::skip() {
  switch (peek()) {
    case '{':
      return object([this](const std::string&) { skip(); });
    case '[':
      return array([this] { skip(); });
    case '"':
      string();
      return;
    case 't':
      return skip_word("true");
    case 'f':
      return skip_word("false");
    case 'n':
      return skip_word("null");
    default:
      return skip_number();
  }
}

void JsonReader::finish() {
  peek();
  if (position_ < text_.size()) fail_here("the text goes on after its end");
}

}  // namespace braze
