// split.h — cuts a text into pieces. A tokenizer's model takes these one by one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/text/pattern.h"

namespace braze {

/// What happens to the matches of a pattern.
enum class Matches : uint8_t {
  Removed,
  Isolated,            ///< each match is a piece
  MergedWithPrevious,  ///< a match belongs to the piece before it
  MergedWithNext,      ///< a match belongs to the piece after it
  Contiguous,          ///< matches without anything between them are one piece
};

/// One step of cutting.
struct SplitStep {
  Pattern pattern;
  Matches matches = Matches::Isolated;
  bool inverted = false;  ///< what lies between matches counts as the matches
};

/// The pieces of `text`, from left to right. They are views of it, and none is empty.
std::vector<std::string_view> split(std::string_view text, const SplitStep& step);

}  // namespace braze
