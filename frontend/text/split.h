// split.h — cuts a text into the pieces that a tokenizer's model takes one by one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/text/pattern.h"

namespace braze {

/// What becomes of the matches of a pattern.
enum class Matches : uint8_t {
  Removed,
  Isolated,            ///< a piece of their own
  MergedWithPrevious,  ///< part of the piece before
  MergedWithNext,      ///< part of the piece behind
  Contiguous,          ///< a piece of their own, with those that follow at once
};

/// One step.
struct SplitStep {
  Pattern pattern;
  Matches matches = Matches::Isolated;
  bool inverted = false;  ///< what lies between the matches counts as matches, and they as between
};

/// The pieces of `text`, which lie in it, from left to right; none is empty.
std::vector<std::string_view> split(std::string_view text, const SplitStep& step);

}  // namespace braze
