#include "frontend/text/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cctype>
#include <cstdlib>
#include <memory>

#include "frontend/text/codes.h"
#include "ir/support/text.h"

namespace braze {

namespace {

// The characters that Unicode calls White_Space. PCRE2's own \s also has U+180E, which has not been
// white space since Unicode 6.3.
constexpr std::string_view kSpace =
    R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

/// The pattern with \s and \S written out. Inside of a class, \S stays as it is.
std::string with_spaces(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char letter = pattern[++i];
      if (letter == 's')
        out += in_class ? std::string(kSpace) : fmt::format("[{}]", kSpace);
      else if (letter == 'S' && !in_class)
        out += fmt::format("[^{}]", kSpace);
      else
        out.append({c, letter});
      continue;
    }
    if (c == '[' && !in_class)
      in_class = true;
    else if (c == ']' && in_class)
      in_class = false;
    out += c;
  }
  return out;
}

struct FreeMatch {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

std::string message_of(int error) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

Pattern::Pattern(std::string_view pattern, std::string_view file) {
  const std::string text = with_spaces(pattern);
  int error = 0;
  PCRE2_SIZE where = 0;
  // \C is refused, because it matches single bytes of a character.
  pcre2_code* const code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &where, nullptr);
  if (code == nullptr)
    fail(codes::kTokenizerFormat,
         fmt::format("{}: the pattern {}: {}", file, quote(pattern), message_of(error)));
  code_ =
      std::shared_ptr<void>(code, [](void* p) { pcre2_code_free(static_cast<pcre2_code*>(p)); });
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // if this fails, PCRE2 interprets the pattern
}

std::string Pattern::literal(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool is_mark =
        static_cast<unsigned char>(c) < 0x80 && !std::isalnum(static_cast<unsigned char>(c));
    if (is_mark) out += '\\';
    out += c;
  }
  return out;
}

void Pattern::each(std::string_view text, const Found& found) const {
  const auto* const code = static_cast<const pcre2_code*>(code_.get());
  const std::unique_ptr<pcre2_match_data, FreeMatch> match(
      pcre2_match_data_create_from_pattern(code, nullptr));
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  for (size_t at = 0; at <= text.size();) {
    // The whole text is known to be UTF-8.
    const int result =
        pcre2_match(code, subject, text.size(), at, PCRE2_NO_UTF_CHECK, match.get(), nullptr);
    if (result == PCRE2_ERROR_NOMATCH) return;
    if (result < 0)
      fail(codes::kTokenizerLimit, fmt::format("the tokenizer's pattern: {}", message_of(result)));
    const PCRE2_SIZE* const bounds = pcre2_get_ovector_pointer(match.get());
    const size_t begin = bounds[0], end = bounds[1];
    if (end > begin) {
      const PCRE2_SPTR mark = pcre2_get_mark(match.get());
      found(begin, end, mark == nullptr ? -1 : std::atoi(reinterpret_cast<const char*>(mark)));
      at = end;
    } else {  // an empty match: continue at the next character
      at = begin + 1;
      while (at < text.size() && (text[at] & 0xc0) == 0x80) ++at;
    }
  }
}

}  // namespace braze
