#include "tests/fuzz/parsers/mutate.h"

#include <algorithm>
#include <cctype>

namespace braze::fuzz {
namespace {

// Where arithmetic and limits have their edges, and what opens what it does not close.
constexpr std::string_view kEdges[] = {
    "0",
    "1",
    "-1",
    "2",
    "63",
    "64",
    "255",
    "256",
    "65536",
    "2147483647",
    "2147483648",
    "4294967296",
    "1073741823",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551616",
    "1e308",
    "nan",
    "-inf",
    "0x7fffffff",
    "1.5",
    "(",
    "{",
    "[",
    "}",
    "\"",
    "//",
    "%",
    "@",
    "-",
    "..",
    "\n",
    ",",
    "mod",
};

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::string_view line_at(std::string_view text, size_t position) {
  const size_t before = text.rfind('\n', position == 0 ? 0 : position - 1);
  const size_t begin = before == std::string_view::npos ? 0 : before + 1;
  return text.substr(begin, text.find('\n', begin) + 1 - begin);
}

size_t position_in(std::string_view text, Random& random) {
  return static_cast<size_t>(random.below(static_cast<int64_t>(text.size()) + 1));
}

void change_word(std::string& text, std::string_view other, Random& random) {
  const std::vector<std::string_view> words = split_words(text);
  if (words.empty()) return;
  const std::string_view word = random.pick(words);
  const auto at = static_cast<size_t>(word.data() - text.data());
  const std::vector<std::string_view> others = split_words(random.one_in(2) ? text : other);
  std::string with;
  switch (random.below(4)) {
    case 0:
      break;  // is dropped
    case 1:
      with = std::string(word) + std::string(word);
      break;
    case 2:
      with = " " + std::string(random.pick(kEdges));
      break;
    default:
      if (!others.empty()) with = random.pick(others);
  }
  text.replace(at, word.size(), with);
}

void change_line(std::string& text, std::string_view other, Random& random) {
  const std::string_view line = line_at(text, position_in(text, random));
  const auto at = static_cast<size_t>(line.data() - text.data());
  const std::string_view source = random.one_in(2) ? std::string_view(text) : other;
  const std::string with(line_at(source, position_in(source, random)));
  if (random.one_in(3))
    text.erase(at, line.size());
  else
    text.insert(at, with);
}

void change_bytes(std::string& bytes, Random& random) {
  const size_t at = position_in(bytes, random);
  const auto byte = static_cast<char>(random.pick({int64_t{0}, int64_t{0xff}, random.below(256)}));
  switch (random.below(5)) {
    case 0:
      bytes.resize(at);
      break;
    case 1:
      bytes.insert(at, 1, byte);
      break;
    case 2:
      bytes.erase(at, static_cast<size_t>(random.below(8)));
      break;
    case 3:
      bytes.insert(at,
                   bytes.substr(position_in(bytes, random), static_cast<size_t>(random.below(64))));
      break;
    default:
      if (at < bytes.size()) bytes[at] = byte;
  }
}

}  // namespace

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin;
    while (end < text.size() && std::isspace(static_cast<unsigned char>(text[end])) != 0) ++end;
    if (end < text.size() && !is_word(text[end++])) {
      // a mark of its own
    } else {
      while (end < text.size() && is_word(text[end])) ++end;
    }
    words.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

std::string mutate_text(std::string_view text, std::string_view other, Random& random) {
  std::string out(text);
  for (int64_t changes = random.within(1, 4); changes > 0; --changes) {
    const int64_t kind = random.below(8);
    if (kind < 5)
      change_word(out, other, random);
    else if (kind < 7)
      change_line(out, other, random);
    else
      change_bytes(out, random);
  }
  return out;
}

std::string mutate_bytes(std::string_view bytes, Random& random) {
  std::string out(bytes);
  for (int64_t changes = random.within(1, 4); changes > 0; --changes) change_bytes(out, random);
  return out;
}

}  // namespace braze::fuzz
