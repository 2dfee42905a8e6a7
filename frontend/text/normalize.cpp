#include "frontend/text/normalize.h"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>

#include "braze/error.h"

namespace braze {

namespace {

/// Calls f(character) for each character of `text`.
template <class F>
void each_character(std::string_view text, const F& f) {
  for (size_t at = 0; at < text.size();) {
    utf8proc_int32_t c = 0;
    const utf8proc_ssize_t length =
        utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                         static_cast<utf8proc_ssize_t>(text.size() - at), &c);
    BRAZE_CHECK(length > 0, "the text is UTF-8");
    f(c);
    at += static_cast<size_t>(length);
  }
}

void append(std::string& out, utf8proc_int32_t c) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t length = utf8proc_encode_char(c, bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
}

bool is_space(utf8proc_int32_t c) {
  const utf8proc_category_t category = utf8proc_category(c);
  return (c >= '\t' && c <= '\r') || c == 0x85 || category == UTF8PROC_CATEGORY_ZS ||
         category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}

bool is_other(utf8proc_int32_t c) {
  const utf8proc_category_t category = utf8proc_category(c);
  return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
         category == UTF8PROC_CATEGORY_CS || category == UTF8PROC_CATEGORY_CO;
}

bool is_ideograph(utf8proc_int32_t c) {
  constexpr utf8proc_int32_t kRanges[][2] = {
      {0x4e00, 0x9fff},   {0x3400, 0x4dbf},   {0x20000, 0x2a6df}, {0x2a700, 0x2b73f},
      {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf}, {0xf900, 0xfaff},   {0x2f800, 0x2fa1f}};
  for (const auto& range : kRanges)
    if (c >= range[0] && c <= range[1]) return true;
  return false;
}

}  // namespace

std::string normalized(std::string_view text, UnicodeForm form) {
  int options = UTF8PROC_STABLE;
  options |=
      form == UnicodeForm::C || form == UnicodeForm::KC ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == UnicodeForm::KC || form == UnicodeForm::KD) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t length = utf8proc_map(
      reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
      static_cast<utf8proc_ssize_t>(text.size()), &result, static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(result, std::free);
  if (length == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
  BRAZE_CHECK(length >= 0, "the text is UTF-8");
  return {reinterpret_cast<const char*>(result), static_cast<size_t>(length)};
}

std::string lowercase(std::string_view text) {
  std::string out;
  each_character(text, [&out](utf8proc_int32_t c) {
    // Only this character becomes two characters. utf8proc gives only the first one.
    if (c == 0x130) {
      append(out, 'i');
      append(out, 0x307);
    } else {
      append(out, utf8proc_tolower(c));
    }
  });
  return out;
}

std::string without_marks(std::string_view text) {
  std::string out;
  each_character(text, [&out](utf8proc_int32_t c) {
    if (utf8proc_category(c) != UTF8PROC_CATEGORY_MN) append(out, c);
  });
  return out;
}

std::string normalized(std::string_view text, const BertNormalizer& options) {
  std::string out;
  each_character(text, [&](utf8proc_int32_t c) {
    if (options.clean) {
      if (is_space(c)) {
        out += ' ';
        return;
      }
      if (c == 0 || c == 0xfffd || is_other(c)) return;
    }
    const bool spaced = options.split_ideographs && is_ideograph(c);
    if (spaced) out += ' ';
    append(out, c);
    if (spaced) out += ' ';
  });
  if (options.strip_accents) out = without_marks(normalized(out, UnicodeForm::D));
  if (options.lower) out = lowercase(out);
  return out;
}

}  // namespace braze
