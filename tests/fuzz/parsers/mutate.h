// mutate.h — changes to a text that keep it nearly well formed: by word, by line, by number.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/random.h"

namespace braze::fuzz {

/// The words, numbers and marks of a text, each with the blanks before it.
std::vector<std::string_view> split_words(std::string_view text);

/// `text` after one to four changes; `other` gives words and lines to put in.
std::string mutate_text(std::string_view text, std::string_view other, Random& random);

/// `bytes` after one to four changes of single bytes, cuts and repetitions.
std::string mutate_bytes(std::string_view bytes, Random& random);

}  // namespace braze::fuzz
