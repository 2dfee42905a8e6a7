// normalize.h — turns equivalent spellings of a text into one form, with utf8proc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace braze {

enum class UnicodeForm : uint8_t { C, D, KC, KD };

// All of these functions take UTF-8.

std::string normalized(std::string_view text, UnicodeForm form);
/// Maps each character without regard to its neighbours.
std::string lowercase(std::string_view text);
/// Removes the marks that are drawn over other characters (category Mn).
std::string without_marks(std::string_view text);

/// How BERT changes a text before it looks for words.
struct BertNormalizer {
  bool clean = true;             ///< control characters are dropped, white space becomes blanks
  bool split_ideographs = true;  ///< puts blanks around each ideograph
  bool strip_accents = true;
  bool lower = true;
};
std::string normalized(std::string_view text, const BertNormalizer& options);

}  // namespace braze
