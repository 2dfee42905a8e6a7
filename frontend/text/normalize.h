// normalize.h — one form for the many ways of writing a text, by utf8proc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace braze {

enum class UnicodeForm : uint8_t { C, D, KC, KD };

// All of these take UTF-8.

std::string normalized(std::string_view text, UnicodeForm form);
/// Maps each character by itself.
std::string lowercase(std::string_view text);
/// Removes the marks that take no place of their own (category Mn).
std::string without_marks(std::string_view text);

/// What BERT does before it looks for words.
struct BertNormalizer {
  bool clean = true;             ///< control characters are dropped, white space becomes blanks
  bool split_ideographs = true;  ///< blanks around each of them
  bool strip_accents = true;
  bool lower = true;
};
std::string normalized(std::string_view text, const BertNormalizer& options);

}  // namespace braze
